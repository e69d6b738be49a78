"""Written by stubs/write.py from the functions themselves."""

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

from needle.autograd import Tensor as Tensor
from needle.autograd import TensorTuple as TensorTuple
from needle.ops.arithmetic import AddScalar as AddScalar
from needle.ops.arithmetic import DivScalar as DivScalar
from needle.ops.arithmetic import EWiseAdd as EWiseAdd
from needle.ops.arithmetic import EWiseDiv as EWiseDiv
from needle.ops.arithmetic import EWiseMul as EWiseMul
from needle.ops.arithmetic import EWisePow as EWisePow
from needle.ops.arithmetic import MulScalar as MulScalar
from needle.ops.arithmetic import Negate as Negate
from needle.ops.arithmetic import NegateBeside as NegateBeside
from needle.ops.arithmetic import PowerScalar as PowerScalar
from needle.ops.choosing import Abs as Abs
from needle.ops.choosing import Clip as Clip
from needle.ops.choosing import Maximum as Maximum
from needle.ops.choosing import Minimum as Minimum
from needle.ops.choosing import Where as Where
from needle.ops.conversion import Alias as Alias
from needle.ops.conversion import Astype as Astype
from needle.ops.conversion import Clone as Clone
from needle.ops.conversion import ToDevice as ToDevice
from needle.ops.convolution import AvgPool2d as AvgPool2d
from needle.ops.convolution import AvgPool2dGrad as AvgPool2dGrad
from needle.ops.convolution import Conv as Conv
from needle.ops.convolution import Conv2d as Conv2d
from needle.ops.convolution import Conv2dInputGrad as Conv2dInputGrad
from needle.ops.convolution import Conv2dWeightGrad as Conv2dWeightGrad
from needle.ops.convolution import Convolution as Convolution
from needle.ops.convolution import MaxPool2d as MaxPool2d
from needle.ops.extremes import Extreme as Extreme
from needle.ops.extremes import Max as Max
from needle.ops.extremes import Min as Min
from needle.ops.functions import GELU as GELU
from needle.ops.functions import Cos as Cos
from needle.ops.functions import Erf as Erf
from needle.ops.functions import Exp as Exp
from needle.ops.functions import Expm1 as Expm1
from needle.ops.functions import GELUGrad as GELUGrad
from needle.ops.functions import Log as Log
from needle.ops.functions import Log1p as Log1p
from needle.ops.functions import ReLU as ReLU
from needle.ops.functions import ReLUGrad as ReLUGrad
from needle.ops.functions import Sigmoid as Sigmoid
from needle.ops.functions import SigmoidGrad as SigmoidGrad
from needle.ops.functions import SiLU as SiLU
from needle.ops.functions import SiLUGrad as SiLUGrad
from needle.ops.functions import Sin as Sin
from needle.ops.functions import Sqrt as Sqrt
from needle.ops.functions import Tanh as Tanh
from needle.ops.functions import TanhGrad as TanhGrad
from needle.ops.fused import FusedGradient as FusedGradient
from needle.ops.fused import FusedGradients as FusedGradients
from needle.ops.fused import FusedOp as FusedOp
from needle.ops.fused import FusedTupleGradient as FusedTupleGradient
from needle.ops.fused import FusedTupleOp as FusedTupleOp
from needle.ops.helpers import ValuesAndIndices
from needle.ops.indexing import AddAt as AddAt
from needle.ops.indexing import GetItem as GetItem
from needle.ops.indexing import ScatterAdd as ScatterAdd
from needle.ops.indexing import SetItem as SetItem
from needle.ops.indexing import Take as Take
from needle.ops.linalg import Einsum as Einsum
from needle.ops.linalg import Linear as Linear
from needle.ops.linalg import MatMul as MatMul
from needle.ops.linalg import RowsProduct as RowsProduct
from needle.ops.network import Attention as Attention
from needle.ops.network import BatchNorm as BatchNorm
from needle.ops.network import CrossEntropy as CrossEntropy
from needle.ops.network import Dropout as Dropout
from needle.ops.network import LayerNorm as LayerNorm
from needle.ops.network import MeanSquaredError as MeanSquaredError
from needle.ops.network import ScaledDifference as ScaledDifference
from needle.ops.recurrent import GRU as GRU
from needle.ops.recurrent import LSTM as LSTM
from needle.ops.recurrent import RNN as RNN
from needle.ops.reductions import BroadcastTo as BroadcastTo
from needle.ops.reductions import CumSum as CumSum
from needle.ops.reductions import Deviation as Deviation
from needle.ops.reductions import FitTo as FitTo
from needle.ops.reductions import LogSoftmax as LogSoftmax
from needle.ops.reductions import LogSoftmaxGrad as LogSoftmaxGrad
from needle.ops.reductions import LogSumExp as LogSumExp
from needle.ops.reductions import LogSumExpGrad as LogSumExpGrad
from needle.ops.reductions import Mean as Mean
from needle.ops.reductions import Softmax as Softmax
from needle.ops.reductions import SoftmaxGrad as SoftmaxGrad
from needle.ops.reductions import Summation as Summation
from needle.ops.shapes import Concatenate as Concatenate
from needle.ops.shapes import Dilate as Dilate
from needle.ops.shapes import Flip as Flip
from needle.ops.shapes import Pad as Pad
from needle.ops.shapes import Permute as Permute
from needle.ops.shapes import Reshape as Reshape
from needle.ops.shapes import Split as Split
from needle.ops.shapes import Stack as Stack
from needle.ops.shapes import Transpose as Transpose
from needle.ops.shapes import UnDilate as UnDilate
from needle.ops.trigonometry import Acos as Acos
from needle.ops.trigonometry import Acosh as Acosh
from needle.ops.trigonometry import Asin as Asin
from needle.ops.trigonometry import Asinh as Asinh
from needle.ops.trigonometry import Atan as Atan
from needle.ops.trigonometry import Atan2 as Atan2
from needle.ops.trigonometry import Atanh as Atanh
from needle.ops.trigonometry import Cosh as Cosh
from needle.ops.trigonometry import Hypot as Hypot
from needle.ops.trigonometry import Log2 as Log2
from needle.ops.trigonometry import Log10 as Log10
from needle.ops.trigonometry import LogAddExp as LogAddExp
from needle.ops.trigonometry import Remainder as Remainder
from needle.ops.trigonometry import Sinh as Sinh
from needle.ops.trigonometry import Tan as Tan
from needle.ops.tuples import FusedAddScalars as FusedAddScalars
from needle.ops.tuples import MakeTensorTuple as MakeTensorTuple
from needle.ops.tuples import TupleGetItem as TupleGetItem
from needle.typing import ArrayLike, Axes, DeviceLike, DTypeLike, Key, Number, Operand, Pair, Shape, Tensors

def equal(a: Any, b: Any) -> Any: ...
def greater_equal(a: Any, b: Any) -> Any: ...
def isfinite(a: Any) -> Any: ...
def logical_and(a: Any, b: Any) -> Any: ...
def logical_not(a: Any) -> Any: ...
def where(condition: Any, a: Operand | None = None, b: Operand | None = None) -> Any: ...
def log(a: Tensor) -> Tensor: ...
def add(a: Operand, b: Operand) -> Tensor: ...
def add_scalar(a: Tensor, scalar: Number) -> Tensor: ...
def subtract(a: Any, b: Any) -> Tensor: ...
def multiply(a: Operand, b: Operand) -> Tensor: ...
def mul_scalar(a: Tensor, scalar: Number) -> Tensor: ...
def divide(a: Operand, b: Operand) -> Tensor: ...
def divide_scalar(a: Tensor, scalar: Number) -> Tensor: ...
def power(a: Operand, b: Operand) -> Tensor: ...
def power_scalar(a: Tensor, scalar: Number) -> Tensor: ...
def negate(a: Tensor) -> Tensor: ...
def astype(a: Tensor, dtype: DTypeLike) -> Tensor: ...
def abs(a: Tensor) -> Tensor: ...
def clip(
    a: Tensor,
    low: Number | None = None,
    high: Number | None = None,
    *,
    min: Number | None = ...,
    max: Number | None = ...,
) -> Tensor: ...
def maximum(a: Operand, b: Operand) -> Tensor: ...
def minimum(a: Operand, b: Operand) -> Tensor: ...
def not_equal(a: Any, b: Any) -> Any: ...
def less(a: Any, b: Any) -> Any: ...
def less_equal(a: Any, b: Any) -> Any: ...
def greater(a: Any, b: Any) -> Any: ...
def logical_or(a: Any, b: Any) -> Any: ...
def logical_xor(a: Any, b: Any) -> Any: ...
def bitwise_and(*args: Any) -> Any: ...
def bitwise_or(*args: Any) -> Any: ...
def bitwise_xor(*args: Any) -> Any: ...
def bitwise_not(*args: Any) -> Any: ...
def bitwise_left_shift(*args: Any) -> Any: ...
def bitwise_right_shift(*args: Any) -> Any: ...
def floor_divide(a: Operand, b: Operand) -> Tensor: ...
def sign(a: Any) -> Any: ...
def floor(a: Any) -> Any: ...
def ceil(a: Any) -> Any: ...
def round(a: Tensor, decimals: int = 0) -> Tensor: ...
def trunc(a: Any) -> Any: ...
def signbit(a: Any) -> Any: ...
def isnan(a: Any) -> Any: ...
def isinf(a: Any) -> Any: ...
def to(
    a: Tensor, *where: Any, device: DeviceLike = None, dtype: DTypeLike | None = None, copy: bool = False
) -> Tensor: ...
def to_device(a: Tensor, device: DeviceLike) -> Tensor: ...
def clone(a: Tensor) -> Tensor: ...
def argmax(
    a: Tensor,
    axis: SupportsIndex | None = None,
    keepdims: bool = False,
    *,
    axes: SupportsIndex | None = ...,
    dim: SupportsIndex | None = ...,
    dims: SupportsIndex | None = ...,
    keepdim: bool = ...,
) -> Tensor: ...
def gather(a: Tensor, index: Any, axis: Any = -1, *, axes: Any = ..., dim: Any = ..., dims: Any = ...) -> Tensor: ...
def expand_dims(a: Tensor, axis: Axes = ..., *, axes: Axes = ..., dim: Axes = ..., dims: Axes = ...) -> Tensor: ...
def pad(a: Tensor, widths: Sequence[tuple[int, int]], value: Number = 0) -> Tensor: ...
def reshape(a: Tensor, shape: Shape) -> Tensor: ...
def stack(
    args: Tensors | TensorTuple,
    axis: SupportsIndex = 0,
    *,
    axes: SupportsIndex = ...,
    dim: SupportsIndex = ...,
    dims: SupportsIndex = ...,
) -> Tensor: ...
def conv(a: Tensor, b: Tensor, stride: int = 1, padding: int = 1) -> Tensor: ...
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Any = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor: ...
def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: Any = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor: ...
def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Any = 0,
    output_padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor: ...
def max_pool2d(x: Tensor, size: Pair, stride: Pair | None = None, padding: Any = 0) -> Tensor: ...
def avg_pool2d(x: Tensor, size: Pair, stride: Pair | None = None, padding: Any = 0) -> Tensor: ...
def broadcast_to(a: Tensor, shape: Shape) -> Tensor: ...
def squeeze(a: Tensor, axis: Axes = None, *, axes: Axes = ..., dim: Axes = ..., dims: Axes = ...) -> Tensor: ...
def max(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    *,
    dim: SupportsIndex | None = None,
    axis: Axes = ...,
    dims: Axes = ...,
    keepdim: bool = ...,
) -> Any: ...
def min(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    *,
    dim: SupportsIndex | None = None,
    axis: Axes = ...,
    dims: Axes = ...,
    keepdim: bool = ...,
) -> Any: ...
def amax(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    *,
    axis: Axes = ...,
    dim: Axes = ...,
    dims: Axes = ...,
    keepdim: bool = ...,
) -> Tensor: ...
def amin(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    *,
    axis: Axes = ...,
    dim: Axes = ...,
    dims: Axes = ...,
    keepdim: bool = ...,
) -> Tensor: ...
def argmin(
    a: Tensor,
    axis: SupportsIndex | None = None,
    keepdims: bool = False,
    *,
    axes: SupportsIndex | None = ...,
    dim: SupportsIndex | None = ...,
    dims: SupportsIndex | None = ...,
    keepdim: bool = ...,
) -> Tensor: ...
def log1p(a: Tensor) -> Tensor: ...
def exp(a: Tensor) -> Tensor: ...
def expm1(a: Tensor) -> Tensor: ...
def sqrt(a: Tensor) -> Tensor: ...
def sin(a: Tensor) -> Tensor: ...
def cos(a: Tensor) -> Tensor: ...
def tanh(a: Tensor) -> Tensor: ...
def sigmoid(a: Tensor) -> Tensor: ...
def erf(a: Tensor) -> Tensor: ...
def relu(a: Tensor) -> Tensor: ...
def gelu(a: Tensor) -> Tensor: ...
def silu(a: Tensor) -> Tensor: ...
def sum_to(a: Tensor, shape: tuple[int, ...]) -> Tensor: ...
def getitem(a: Tensor, key: Key) -> Tensor: ...
def setitem(a: Tensor, key: Key, value: Operand) -> Tensor: ...
def take(
    a: Tensor,
    index: Any,
    axis: SupportsIndex | None = None,
    *,
    axes: SupportsIndex | None = ...,
    dim: SupportsIndex | None = ...,
    dims: SupportsIndex | None = ...,
) -> Tensor: ...
def embedding(ids: Any, weight: Tensor) -> Tensor: ...
def matmul(a: Tensor, b: Tensor) -> Tensor: ...
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor: ...
def einsum(subscripts: str, *operands: Any) -> Tensor: ...
def logsumexp(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    *,
    axis: Axes = ...,
    dim: Axes = ...,
    dims: Axes = ...,
    keepdim: bool = ...,
) -> Tensor: ...
def mean(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    *,
    axis: Axes = ...,
    dim: Axes = ...,
    dims: Axes = ...,
    keepdim: bool = ...,
) -> Tensor: ...
def softmax(a: Tensor, axes: Axes = -1, *, axis: Axes = ..., dim: Axes = ..., dims: Axes = ...) -> Tensor: ...
def summation(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    *,
    axis: Axes = ...,
    dim: Axes = ...,
    dims: Axes = ...,
    keepdim: bool = ...,
) -> Tensor: ...
def permute(a: Tensor, axes: Axes = ..., *, axis: Axes = ..., dim: Axes = ..., dims: Axes = ...) -> Tensor: ...
def transpose(
    a: Tensor,
    axes: Axes = None,
    axis2: SupportsIndex | None = None,
    *,
    dim0: SupportsIndex | None = None,
    dim1: SupportsIndex | None = None,
    axis: Axes = ...,
    dim: Axes = ...,
    dims: Axes = ...,
) -> Tensor: ...
def repeat(
    a: Tensor,
    repeats: Any,
    axis: SupportsIndex | None = None,
    *,
    axes: SupportsIndex | None = ...,
    dim: SupportsIndex | None = ...,
    dims: SupportsIndex | None = ...,
) -> Tensor: ...
def attention_probabilities(
    q: Tensor, k: Tensor, mask: Any = None, causal: bool = False, scale: float | None = None
) -> Tensor: ...
def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05) -> Tensor: ...
def batch_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
    axis: int = 1,
    unbiased: bool = False,
    axes: int = ...,
    dim: int = ...,
    dims: int = ...,
) -> Tensor: ...
def cross_entropy(
    logits: Tensor, labels: Any, reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0
) -> Tensor: ...
def mean_squared_error(a: Tensor, b: Tensor) -> Tensor: ...
def scaled_dot_product_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Any = None, causal: bool = False, scale: float | None = None
) -> Tensor: ...
def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor: ...
def concatenate(
    args: Tensors | TensorTuple,
    axis: SupportsIndex = 0,
    *,
    axes: SupportsIndex = ...,
    dim: SupportsIndex = ...,
    dims: SupportsIndex = ...,
) -> Tensor: ...
def split_sizes(
    a: Tensor,
    sizes: Any,
    axis: SupportsIndex = 0,
    *,
    axes: SupportsIndex = ...,
    dim: SupportsIndex = ...,
    dims: SupportsIndex = ...,
) -> tuple[Tensor, ...]: ...
def flatten(a: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor: ...
def narrow(
    a: Tensor, axis: int = ..., start: int = ..., length: int = ..., *, axes: int = ..., dim: int = ..., dims: int = ...
) -> Tensor: ...
def chunk(
    a: Tensor, chunks: int, axis: int = 0, *, axes: int = ..., dim: int = ..., dims: int = ...
) -> tuple[Tensor, ...]: ...
def roll(
    a: Tensor,
    shift: int | Sequence[int] = ...,
    axis: Axes = None,
    *,
    shifts: int | Sequence[int] = ...,
    axes: Axes = ...,
    dim: Axes = ...,
    dims: Axes = ...,
) -> Tensor: ...
def tile(a: Tensor, repetitions: int | Sequence[int]) -> Tensor: ...
def tril(a: Tensor, k: int = 0, *, diagonal: int = ...) -> Tensor: ...
def triu(a: Tensor, k: int = 0, *, diagonal: int = ...) -> Tensor: ...
def diag(a: Tensor, k: int = 0, *, diagonal: int = ...) -> Tensor: ...
def meshgrid(*tensors: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]: ...
def broadcast_arrays(*tensors: Tensor) -> tuple[Tensor, ...]: ...
def split(
    a: Tensor,
    axis: Any = 0,
    *sizes_axis: Any,
    dim: SupportsIndex | None = None,
    split_size_or_sections: Any = None,
    axes: Any = ...,
    dims: Any = ...,
) -> Any: ...
def lstm(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
    h0: Tensor | None = None,
    c0: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]: ...
def gru(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
    h0: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...
def rnn(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
    h0: Tensor | None = None,
    nonlinearity: str = "tanh",
) -> tuple[Tensor, Tensor]: ...
def flip(a: Tensor, axes: Axes = None, *, axis: Axes = ..., dim: Axes = ..., dims: Axes = ...) -> Tensor: ...
def var(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    ddof: int | None = None,
    *,
    correction: int | None = None,
    unbiased: bool | None = None,
    axis: Axes = ...,
    dim: Axes = ...,
    dims: Axes = ...,
    keepdim: bool = ...,
) -> Tensor: ...
def std(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    ddof: int | None = None,
    *,
    correction: int | None = None,
    unbiased: bool | None = None,
    axis: Axes = ...,
    dim: Axes = ...,
    dims: Axes = ...,
    keepdim: bool = ...,
) -> Tensor: ...
def cumsum(
    a: Tensor,
    axis: SupportsIndex | None = None,
    *,
    axes: SupportsIndex | None = ...,
    dim: SupportsIndex | None = ...,
    dims: SupportsIndex | None = ...,
) -> Tensor: ...
def logsoftmax(a: Tensor, axes: Axes = -1, *, axis: Axes = ..., dim: Axes = ..., dims: Axes = ...) -> Tensor: ...
def any(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    *,
    axis: Axes = ...,
    dim: Axes = ...,
    dims: Axes = ...,
    keepdim: bool = ...,
) -> Tensor: ...
def all(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    *,
    axis: Axes = ...,
    dim: Axes = ...,
    dims: Axes = ...,
    keepdim: bool = ...,
) -> Tensor: ...
def moveaxis(a: Tensor, source: Axes, destination: Axes) -> Tensor: ...
def prod(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    *,
    axis: Axes = ...,
    dim: Axes = ...,
    dims: Axes = ...,
    keepdim: bool = ...,
) -> Tensor: ...
def cumprod(
    a: Tensor,
    axis: SupportsIndex | None = None,
    *,
    axes: SupportsIndex | None = ...,
    dim: SupportsIndex | None = ...,
    dims: SupportsIndex | None = ...,
) -> Tensor: ...
def diff(
    a: Tensor,
    axis: SupportsIndex = -1,
    n: int = 1,
    *,
    axes: SupportsIndex = ...,
    dim: SupportsIndex = ...,
    dims: SupportsIndex = ...,
) -> Tensor: ...
def swapaxes(
    a: Tensor,
    axis1: SupportsIndex = ...,
    axis2: SupportsIndex = ...,
    *,
    dim0: SupportsIndex = ...,
    dim1: SupportsIndex = ...,
) -> Tensor: ...
def dilate(
    a: Tensor, axes: Axes = ..., dilation: int = ..., *, axis: Axes = ..., dim: Axes = ..., dims: Axes = ...
) -> Tensor: ...
def undilate(
    a: Tensor, axes: Axes = ..., dilation: int = ..., *, axis: Axes = ..., dim: Axes = ..., dims: Axes = ...
) -> Tensor: ...
def sort(
    a: Tensor,
    axis: SupportsIndex = -1,
    descending: bool = False,
    stable: bool = True,
    *,
    axes: SupportsIndex = ...,
    dim: SupportsIndex = ...,
    dims: SupportsIndex = ...,
) -> ValuesAndIndices: ...
def topk(
    a: Tensor,
    k: int,
    axis: SupportsIndex = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    axes: SupportsIndex = ...,
    dim: SupportsIndex = ...,
    dims: SupportsIndex = ...,
) -> ValuesAndIndices: ...
def argsort(
    a: Tensor,
    axis: SupportsIndex = -1,
    descending: bool = False,
    stable: bool = True,
    *,
    axes: SupportsIndex = ...,
    dim: SupportsIndex = ...,
    dims: SupportsIndex = ...,
) -> Tensor: ...
def searchsorted(a: Tensor, values: Operand, side: str = "left", right: bool = False) -> Tensor: ...
def isin(a: Tensor, values: Operand, invert: bool = False) -> Tensor: ...
def count_nonzero(
    a: Tensor,
    axes: Axes = None,
    keepdims: bool = False,
    *,
    axis: Axes = ...,
    dim: Axes = ...,
    dims: Axes = ...,
    keepdim: bool = ...,
) -> Tensor: ...
def nonzero(a: Tensor, as_tuple: bool | None = None) -> Any: ...
def unique(a: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any: ...
def bincount(a: Tensor, weights: Operand | None = None, minlength: int = 0) -> Tensor: ...
def tan(a: Tensor) -> Tensor: ...
def asin(a: Tensor) -> Tensor: ...
def acos(a: Tensor) -> Tensor: ...
def atan(a: Tensor) -> Tensor: ...
def sinh(a: Tensor) -> Tensor: ...
def cosh(a: Tensor) -> Tensor: ...
def asinh(a: Tensor) -> Tensor: ...
def acosh(a: Tensor) -> Tensor: ...
def atanh(a: Tensor) -> Tensor: ...
def log2(a: Tensor) -> Tensor: ...
def log10(a: Tensor) -> Tensor: ...
def atan2(a: Operand, b: Operand) -> Tensor: ...
def hypot(a: Operand, b: Operand) -> Tensor: ...
def logaddexp(a: Operand, b: Operand) -> Tensor: ...
def remainder(a: Operand, b: Operand) -> Tensor: ...
def make_tuple(*args: Tensor) -> TensorTuple: ...
def tuple_get_item(value: TensorTuple, index: int) -> Tensor: ...
def fused_add_scalars(x: Tensor, c0: Number, c1: Number) -> TensorTuple: ...

__all__ = [
    "equal",
    "greater_equal",
    "isfinite",
    "logical_and",
    "logical_not",
    "where",
    "log",
    "EWiseAdd",
    "AddScalar",
    "EWiseMul",
    "MulScalar",
    "EWiseDiv",
    "DivScalar",
    "EWisePow",
    "PowerScalar",
    "Negate",
    "NegateBeside",
    "add",
    "add_scalar",
    "subtract",
    "multiply",
    "mul_scalar",
    "divide",
    "divide_scalar",
    "power",
    "power_scalar",
    "negate",
    "astype",
    "Abs",
    "Clip",
    "Where",
    "Maximum",
    "Minimum",
    "abs",
    "clip",
    "maximum",
    "minimum",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_not",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "floor_divide",
    "sign",
    "floor",
    "ceil",
    "round",
    "trunc",
    "signbit",
    "isnan",
    "isinf",
    "Astype",
    "ToDevice",
    "Clone",
    "Alias",
    "to",
    "to_device",
    "clone",
    "argmax",
    "FusedOp",
    "gather",
    "expand_dims",
    "pad",
    "reshape",
    "stack",
    "Convolution",
    "Conv2d",
    "Conv2dInputGrad",
    "Conv2dWeightGrad",
    "Conv",
    "MaxPool2d",
    "AvgPool2d",
    "AvgPool2dGrad",
    "conv",
    "conv2d",
    "conv1d",
    "conv_transpose2d",
    "max_pool2d",
    "avg_pool2d",
    "broadcast_to",
    "squeeze",
    "Extreme",
    "Max",
    "Min",
    "max",
    "min",
    "amax",
    "amin",
    "argmin",
    "Log",
    "Log1p",
    "Exp",
    "Expm1",
    "Sqrt",
    "Sin",
    "Cos",
    "Tanh",
    "TanhGrad",
    "Sigmoid",
    "SigmoidGrad",
    "Erf",
    "ReLU",
    "ReLUGrad",
    "GELU",
    "GELUGrad",
    "SiLU",
    "SiLUGrad",
    "log1p",
    "exp",
    "expm1",
    "sqrt",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "erf",
    "relu",
    "gelu",
    "silu",
    "FusedGradient",
    "FusedGradients",
    "FusedTupleOp",
    "FusedTupleGradient",
    "sum_to",
    "GetItem",
    "AddAt",
    "SetItem",
    "Take",
    "ScatterAdd",
    "getitem",
    "setitem",
    "take",
    "embedding",
    "MatMul",
    "Linear",
    "RowsProduct",
    "Einsum",
    "matmul",
    "linear",
    "einsum",
    "logsumexp",
    "mean",
    "softmax",
    "summation",
    "permute",
    "transpose",
    "repeat",
    "LayerNorm",
    "BatchNorm",
    "CrossEntropy",
    "MeanSquaredError",
    "ScaledDifference",
    "Attention",
    "attention_probabilities",
    "Dropout",
    "layer_norm",
    "batch_norm",
    "cross_entropy",
    "mean_squared_error",
    "scaled_dot_product_attention",
    "dropout",
    "concatenate",
    "split_sizes",
    "flatten",
    "narrow",
    "chunk",
    "roll",
    "tile",
    "tril",
    "triu",
    "diag",
    "meshgrid",
    "broadcast_arrays",
    "split",
    "RNN",
    "GRU",
    "LSTM",
    "lstm",
    "gru",
    "rnn",
    "flip",
    "Summation",
    "Mean",
    "BroadcastTo",
    "FitTo",
    "Deviation",
    "CumSum",
    "LogSumExp",
    "LogSumExpGrad",
    "Softmax",
    "SoftmaxGrad",
    "LogSoftmax",
    "LogSoftmaxGrad",
    "var",
    "std",
    "cumsum",
    "logsoftmax",
    "any",
    "all",
    "moveaxis",
    "prod",
    "cumprod",
    "diff",
    "Reshape",
    "Transpose",
    "Permute",
    "Flip",
    "Dilate",
    "UnDilate",
    "Pad",
    "Stack",
    "Split",
    "Concatenate",
    "swapaxes",
    "dilate",
    "undilate",
    "sort",
    "topk",
    "argsort",
    "searchsorted",
    "isin",
    "count_nonzero",
    "nonzero",
    "unique",
    "bincount",
    "Tan",
    "Asin",
    "Acos",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Acosh",
    "Atanh",
    "Log2",
    "Log10",
    "Atan2",
    "Hypot",
    "LogAddExp",
    "Remainder",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "log2",
    "log10",
    "atan2",
    "hypot",
    "logaddexp",
    "remainder",
    "MakeTensorTuple",
    "TupleGetItem",
    "FusedAddScalars",
    "make_tuple",
    "tuple_get_item",
    "fused_add_scalars",
]
