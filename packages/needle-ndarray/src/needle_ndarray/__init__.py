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
from needle_ndarray.halves import from_words, words
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
__all__ = [name for name in globals() if not name.startswith("_")]
