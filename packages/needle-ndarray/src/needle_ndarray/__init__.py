"""Needle's NDArray: strided arrays on CPU and GPU behind a small backend interface.

>>> import needle_ndarray as nd
>>> a = nd.array([[1, 2], [3, 4]])
>>> (a @ a.T).tolist()
[[5.0, 11.0], [11.0, 25.0]]
"""

from needle_ndarray import random
from needle_ndarray.backend import INTERFACE_VERSION, Backend, Op
from needle_ndarray.buffer import Buffer, empty_cache, memory_stats, next_version, reset_peak, set_cache_limit
from needle_ndarray.config import show_config
from needle_ndarray.convolution import *
from needle_ndarray.creation import (
    arange,
    array,
    asarray,
    astype,
    empty,
    empty_like,
    eye,
    finfo,
    full,
    full_like,
    iinfo,
    linspace,
    one_hot,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)  # fmt: skip
from needle_ndarray.devices import (
    Device,
    DeviceError,
    all_devices,
    cpu,
    cpu_numpy,
    cuda,
    default_device,
    device,
    register,
)  # fmt: skip
from needle_ndarray.dtypes import (
    DType,
    bfloat16,
    bool_,
    can_cast,
    dtype,
    float16,
    float32,
    float64,
    int32,
    int64,
    promote_types,
    result_type,
    uint8,
)  # fmt: skip
from needle_ndarray.elementwise import *
from needle_ndarray.fused import *
from needle_ndarray.halves import bfloat16_words, from_words, shared_words, words
from needle_ndarray.indexing import add_at, gather, nonzero, scatter_add, take, take_along_axis
from needle_ndarray.inspection import __array_namespace_info__, isdtype
from needle_ndarray.interop import from_dlpack, from_numpy
from needle_ndarray.linalg import einsum, matmul, matmul_weight, tensordot, vecdot
from needle_ndarray.manipulation import (
    broadcast_arrays,
    broadcast_to,
    concat,
    concatenate,
    diff,
    expand_dims,
    flip,
    matrix_transpose,
    meshgrid,
    moveaxis,
    pad,
    permute,
    permute_dims,
    repeat,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    swapaxes,
    tile,
    transpose,
    unstack,
)  # fmt: skip
from needle_ndarray.ndarray import BroadcastError, NDArray, accumulate, alike, broadcast_shapes, constant_like, linear
from needle_ndarray.optimizers import adam_step, sgd_step
from needle_ndarray.recurrent import *
from needle_ndarray.reductions import *
from needle_ndarray.sorting import *
from needle_ndarray.threads import get_num_threads, set_num_threads

from math import e, inf, nan, pi  # isort: skip

bool = bool_
newaxis = None
BackendDevice = Device  # the course's name
__version__ = "0.1.0"
__all__ = [
    "random", "INTERFACE_VERSION", "Backend", "Op", "Buffer", "empty_cache", "memory_stats", "next_version",
    "reset_peak", "set_cache_limit", "show_config", "conv2d", "conv2d_input_grad", "conv2d_weight_grad", "max_pool2d",
    "max_pool2d_grad", "avg_pool2d", "avg_pool2d_grad", "arange", "array", "asarray", "astype", "empty", "empty_like",
    "eye", "finfo", "full", "full_like", "iinfo", "linspace", "one_hot", "ones", "ones_like", "tril", "triu", "zeros",
    "zeros_like", "Device", "DeviceError", "all_devices", "cpu", "cpu_numpy", "cuda", "default_device", "device",
    "register", "DType", "bfloat16", "bool_", "can_cast", "dtype", "float16", "float32", "float64", "int32", "int64",
    "promote_types",
    "result_type", "uint8", "negative", "abs", "sign", "sqrt", "rsqrt", "relu", "floor", "ceil", "trunc", "round",
    "isnan", "isinf", "isfinite", "signbit", "logical_not", "invert", "exp", "expm1", "log", "log1p", "sin", "cos",
    "tanh", "sigmoid", "erf", "gelu", "silu", "log2", "log10", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh",
    "acosh", "atanh", "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "maximum",
    "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
    "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "relu_grad", "tanh_grad", "sigmoid_grad", "gelu_grad",
    "silu_grad", "atan2", "hypot", "logaddexp", "copysign", "nextafter", "bitwise_left_shift", "bitwise_right_shift",
    "pow", "bitwise_invert", "absolute", "true_divide", "mod", "where", "clip", "square", "reciprocal", "positive",
    "softmax_grad", "log_softmax_grad", "logsumexp_grad",
    "layer_norm", "layer_norm_grad", "batch_norm", "batch_norm_grad", "cross_entropy", "cross_entropy_grad",
    "attention", "attention_grad", "add_at", "gather", "nonzero", "scatter_add", "take", "take_along_axis", "isdtype",
    "bfloat16_words", "from_words", "shared_words", "words",
    "from_dlpack", "from_numpy", "einsum", "matmul", "matmul_weight", "tensordot", "vecdot",
    "broadcast_arrays", "broadcast_to",
    "concat", "concatenate", "diff", "expand_dims", "flip", "matrix_transpose", "meshgrid", "moveaxis", "pad",
    "permute", "permute_dims", "repeat", "reshape", "roll", "split", "squeeze", "stack", "swapaxes", "tile",
    "transpose", "unstack", "BroadcastError", "NDArray", "accumulate", "alike", "broadcast_shapes", "constant_like",
    "linear", "adam_step", "sgd_step", "lstm", "lstm_grad", "gru", "gru_grad", "rnn", "rnn_grad", "sum", "prod",
    "max", "min", "any", "all", "mean", "var", "std", "argmax", "argmin", "cumsum", "softmax", "log_softmax",
    "logsumexp", "count_nonzero", "cumulative_sum", "cumulative_prod", "sort", "argsort", "searchsorted", "isin",
    "unique_all", "unique_counts", "unique_inverse", "unique_values", "get_num_threads", "set_num_threads", "e",
    "inf", "nan", "pi", "bool", "newaxis", "BackendDevice",
]  # fmt: skip
