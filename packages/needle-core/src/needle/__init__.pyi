"""Written by stubs/write.py from the functions themselves."""

import builtins
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

from needle import amp as amp
from needle import autograd as autograd
from needle import backend_ndarray as backend_ndarray
from needle import backends as backends
from needle import capturing as capturing
from needle import data as data
from needle import distributed as distributed
from needle import distributions as distributions
from needle import drawing as drawing
from needle import func as func
from needle import init as init
from needle import nn as nn
from needle import onnx as onnx
from needle import ops as ops
from needle import optim as optim
from needle import profiling as profiling
from needle import random as random
from needle import testing as testing
from needle import utils as utils
from needle.amp import autocast as autocast
from needle.autograd import Op as Op
from needle.autograd import Tensor as Tensor
from needle.autograd import TensorOp as TensorOp
from needle.autograd import TensorTuple as TensorTuple
from needle.autograd import TensorTupleOp as TensorTupleOp
from needle.autograd import Value as Value
from needle.autograd import get_default_dtype as get_default_dtype
from needle.autograd import is_grad_enabled as is_grad_enabled
from needle.autograd import set_default_dtype as set_default_dtype
from needle.batching import vmap as vmap
from needle.capturing import Captured as Captured
from needle.capturing import CapturedPlan as CapturedPlan
from needle.capturing import CaptureError as CaptureError
from needle.capturing import CaptureWarning as CaptureWarning
from needle.capturing import capture as capture
from needle.creation import BoolTensor as BoolTensor
from needle.creation import ByteTensor as ByteTensor
from needle.creation import DoubleTensor as DoubleTensor
from needle.creation import FloatTensor as FloatTensor
from needle.creation import IntTensor as IntTensor
from needle.creation import LongTensor as LongTensor
from needle.creation import arange as arange
from needle.creation import as_tensor as as_tensor
from needle.creation import empty as empty
from needle.creation import empty_like as empty_like
from needle.creation import eye as eye
from needle.creation import from_numpy as from_numpy
from needle.creation import full as full
from needle.creation import full_like as full_like
from needle.creation import linspace as linspace
from needle.creation import tensor as tensor
from needle.custom import operator as operator
from needle.drawing import Graph as Graph
from needle.drawing import draw_graph as draw_graph
from needle.init import ones as ones
from needle.init import ones_like as ones_like
from needle.init import zeros as zeros
from needle.init import zeros_like as zeros_like
from needle.modes import AnomalyError as AnomalyError
from needle.modes import anomaly_mode as anomaly_mode
from needle.modes import compat as compat
from needle.modes import enable_grad as enable_grad
from needle.modes import lazy_mode as lazy_mode
from needle.modes import no_grad as no_grad
from needle.modes import set_grad_enabled as set_grad_enabled
from needle.ops import abs as abs
from needle.ops import acos as acos
from needle.ops import acosh as acosh
from needle.ops import add as add
from needle.ops import add_scalar as add_scalar
from needle.ops import all as all
from needle.ops import amax as amax
from needle.ops import amin as amin
from needle.ops import any as any
from needle.ops import argmax as argmax
from needle.ops import argmin as argmin
from needle.ops import argsort as argsort
from needle.ops import asin as asin
from needle.ops import asinh as asinh
from needle.ops import astype as astype
from needle.ops import atan as atan
from needle.ops import atan2 as atan2
from needle.ops import atanh as atanh
from needle.ops import attention_probabilities as attention_probabilities
from needle.ops import avg_pool2d as avg_pool2d
from needle.ops import batch_norm as batch_norm
from needle.ops import bincount as bincount
from needle.ops import bitwise_and as bitwise_and
from needle.ops import bitwise_left_shift as bitwise_left_shift
from needle.ops import bitwise_not as bitwise_not
from needle.ops import bitwise_or as bitwise_or
from needle.ops import bitwise_right_shift as bitwise_right_shift
from needle.ops import bitwise_xor as bitwise_xor
from needle.ops import broadcast_arrays as broadcast_arrays
from needle.ops import broadcast_to as broadcast_to
from needle.ops import ceil as ceil
from needle.ops import chunk as chunk
from needle.ops import clip as clip
from needle.ops import clone as clone
from needle.ops import concatenate as concatenate
from needle.ops import conv as conv
from needle.ops import conv1d as conv1d
from needle.ops import conv2d as conv2d
from needle.ops import conv_transpose2d as conv_transpose2d
from needle.ops import cos as cos
from needle.ops import cosh as cosh
from needle.ops import count_nonzero as count_nonzero
from needle.ops import cross_entropy as cross_entropy
from needle.ops import cumprod as cumprod
from needle.ops import cumsum as cumsum
from needle.ops import diag as diag
from needle.ops import diff as diff
from needle.ops import dilate as dilate
from needle.ops import divide as divide
from needle.ops import divide_scalar as divide_scalar
from needle.ops import dropout as dropout
from needle.ops import einsum as einsum
from needle.ops import embedding as embedding
from needle.ops import equal as equal
from needle.ops import erf as erf
from needle.ops import exp as exp
from needle.ops import expand_dims as expand_dims
from needle.ops import expm1 as expm1
from needle.ops import flatten as flatten
from needle.ops import flip as flip
from needle.ops import floor as floor
from needle.ops import floor_divide as floor_divide
from needle.ops import fused_add_scalars as fused_add_scalars
from needle.ops import gather as gather
from needle.ops import gelu as gelu
from needle.ops import getitem as getitem
from needle.ops import greater as greater
from needle.ops import greater_equal as greater_equal
from needle.ops import gru as gru
from needle.ops import hypot as hypot
from needle.ops import isfinite as isfinite
from needle.ops import isin as isin
from needle.ops import isinf as isinf
from needle.ops import isnan as isnan
from needle.ops import layer_norm as layer_norm
from needle.ops import less as less
from needle.ops import less_equal as less_equal
from needle.ops import linear as linear
from needle.ops import log as log
from needle.ops import log1p as log1p
from needle.ops import log2 as log2
from needle.ops import log10 as log10
from needle.ops import logaddexp as logaddexp
from needle.ops import logical_and as logical_and
from needle.ops import logical_not as logical_not
from needle.ops import logical_or as logical_or
from needle.ops import logical_xor as logical_xor
from needle.ops import logsoftmax as logsoftmax
from needle.ops import logsumexp as logsumexp
from needle.ops import lstm as lstm
from needle.ops import make_tuple as make_tuple
from needle.ops import matmul as matmul
from needle.ops import max as max
from needle.ops import max_pool2d as max_pool2d
from needle.ops import maximum as maximum
from needle.ops import mean as mean
from needle.ops import mean_squared_error as mean_squared_error
from needle.ops import meshgrid as meshgrid
from needle.ops import min as min
from needle.ops import minimum as minimum
from needle.ops import moveaxis as moveaxis
from needle.ops import mul_scalar as mul_scalar
from needle.ops import multiply as multiply
from needle.ops import narrow as narrow
from needle.ops import negate as negate
from needle.ops import nonzero as nonzero
from needle.ops import not_equal as not_equal
from needle.ops import pad as pad
from needle.ops import permute as permute
from needle.ops import power as power
from needle.ops import power_scalar as power_scalar
from needle.ops import prod as prod
from needle.ops import relu as relu
from needle.ops import remainder as remainder
from needle.ops import repeat as repeat
from needle.ops import reshape as reshape
from needle.ops import rnn as rnn
from needle.ops import roll as roll
from needle.ops import round as round
from needle.ops import scaled_dot_product_attention as scaled_dot_product_attention
from needle.ops import searchsorted as searchsorted
from needle.ops import setitem as setitem
from needle.ops import sigmoid as sigmoid
from needle.ops import sign as sign
from needle.ops import signbit as signbit
from needle.ops import silu as silu
from needle.ops import sin as sin
from needle.ops import sinh as sinh
from needle.ops import softmax as softmax
from needle.ops import sort as sort
from needle.ops import split as split
from needle.ops import split_sizes as split_sizes
from needle.ops import sqrt as sqrt
from needle.ops import squeeze as squeeze
from needle.ops import stack as stack
from needle.ops import std as std
from needle.ops import subtract as subtract
from needle.ops import sum_to as sum_to
from needle.ops import summation as summation
from needle.ops import swapaxes as swapaxes
from needle.ops import take as take
from needle.ops import tan as tan
from needle.ops import tanh as tanh
from needle.ops import tile as tile
from needle.ops import to as to
from needle.ops import to_device as to_device
from needle.ops import topk as topk
from needle.ops import transpose as transpose
from needle.ops import tril as tril
from needle.ops import triu as triu
from needle.ops import trunc as trunc
from needle.ops import tuple_get_item as tuple_get_item
from needle.ops import undilate as undilate
from needle.ops import unique as unique
from needle.ops import var as var
from needle.ops import where as where
from needle.ops.helpers import ValuesAndIndices
from needle.profiling import Profile as Profile
from needle.profiling import profile as profile
from needle.sampling import Generator as Generator
from needle.sampling import bernoulli as bernoulli
from needle.sampling import manual_seed as manual_seed
from needle.sampling import multinomial as multinomial
from needle.sampling import normal as normal
from needle.sampling import rand as rand
from needle.sampling import rand_like as rand_like
from needle.sampling import randint as randint
from needle.sampling import randint_like as randint_like
from needle.sampling import randn as randn
from needle.sampling import randn_like as randn_like
from needle.sampling import randperm as randperm
from needle.torch_names.both import addcdiv as addcdiv
from needle.torch_names.both import addcmul as addcmul
from needle.torch_names.both import addmm as addmm
from needle.torch_names.both import allclose as allclose
from needle.torch_names.both import bmm as bmm
from needle.torch_names.both import clamp as clamp
from needle.torch_names.both import div as div
from needle.torch_names.both import dot as dot
from needle.torch_names.both import eq as eq
from needle.torch_names.both import ge as ge
from needle.torch_names.both import gt as gt
from needle.torch_names.both import index_add as index_add
from needle.torch_names.both import index_select as index_select
from needle.torch_names.both import isclose as isclose
from needle.torch_names.both import le as le
from needle.torch_names.both import lerp as lerp
from needle.torch_names.both import lt as lt
from needle.torch_names.both import masked_fill as masked_fill
from needle.torch_names.both import masked_select as masked_select
from needle.torch_names.both import median as median
from needle.torch_names.both import mm as mm
from needle.torch_names.both import movedim as movedim
from needle.torch_names.both import mul as mul
from needle.torch_names.both import mv as mv
from needle.torch_names.both import ne as ne
from needle.torch_names.both import neg as neg
from needle.torch_names.both import numel as numel
from needle.torch_names.both import outer as outer
from needle.torch_names.both import pow as pow
from needle.torch_names.both import ravel as ravel
from needle.torch_names.both import reciprocal as reciprocal
from needle.torch_names.both import repeat_interleave as repeat_interleave
from needle.torch_names.both import rsqrt as rsqrt
from needle.torch_names.both import scatter as scatter
from needle.torch_names.both import scatter_add as scatter_add
from needle.torch_names.both import square as square
from needle.torch_names.both import sub as sub
from needle.torch_names.both import t as t
from needle.torch_names.both import trace as trace
from needle.torch_names.both import unbind as unbind
from needle.torch_names.both import unsqueeze as unsqueeze
from needle.torch_names.composed import aminmax as aminmax
from needle.torch_names.composed import argwhere as argwhere
from needle.torch_names.composed import atleast_1d as atleast_1d
from needle.torch_names.composed import atleast_2d as atleast_2d
from needle.torch_names.composed import baddbmm as baddbmm
from needle.torch_names.composed import block_diag as block_diag
from needle.torch_names.composed import cartesian_prod as cartesian_prod
from needle.torch_names.composed import clamp_max as clamp_max
from needle.torch_names.composed import clamp_min as clamp_min
from needle.torch_names.composed import column_stack as column_stack
from needle.torch_names.composed import cov as cov
from needle.torch_names.composed import deg2rad as deg2rad
from needle.torch_names.composed import diag_embed as diag_embed
from needle.torch_names.composed import diagonal as diagonal
from needle.torch_names.composed import dist as dist
from needle.torch_names.composed import dstack as dstack
from needle.torch_names.composed import erfc as erfc
from needle.torch_names.composed import exp2 as exp2
from needle.torch_names.composed import fliplr as fliplr
from needle.torch_names.composed import flipud as flipud
from needle.torch_names.composed import float_power as float_power
from needle.torch_names.composed import fmod as fmod
from needle.torch_names.composed import frac as frac
from needle.torch_names.composed import index_copy as index_copy
from needle.torch_names.composed import index_fill as index_fill
from needle.torch_names.composed import index_put as index_put
from needle.torch_names.composed import inner as inner
from needle.torch_names.composed import is_nonzero as is_nonzero
from needle.torch_names.composed import logit as logit
from needle.torch_names.composed import logspace as logspace
from needle.torch_names.composed import masked_scatter as masked_scatter
from needle.torch_names.composed import matrix_power as matrix_power
from needle.torch_names.composed import nan_to_num as nan_to_num
from needle.torch_names.composed import rad2deg as rad2deg
from needle.torch_names.composed import rot90 as rot90
from needle.torch_names.composed import scalar_tensor as scalar_tensor
from needle.torch_names.composed import scatter_reduce as scatter_reduce
from needle.torch_names.composed import select as select
from needle.torch_names.composed import split_with_sizes as split_with_sizes
from needle.torch_names.composed import std_mean as std_mean
from needle.torch_names.composed import tensor_split as tensor_split
from needle.torch_names.composed import tril_indices as tril_indices
from needle.torch_names.composed import triu_indices as triu_indices
from needle.torch_names.composed import unflatten as unflatten
from needle.torch_names.composed import unique_consecutive as unique_consecutive
from needle.torch_names.composed import var_mean as var_mean
from needle.torch_names.composed import xlogy as xlogy
from needle.torch_names.functions import broadcast_tensors as broadcast_tensors
from needle.torch_names.functions import hstack as hstack
from needle.torch_names.functions import inference_mode as inference_mode
from needle.torch_names.functions import is_floating_point as is_floating_point
from needle.torch_names.functions import is_tensor as is_tensor
from needle.torch_names.functions import load as load
from needle.torch_names.functions import promote_types as promote_types
from needle.torch_names.functions import result_type as result_type
from needle.torch_names.functions import save as save
from needle.torch_names.functions import set_float32_matmul_precision as set_float32_matmul_precision
from needle.torch_names.functions import set_printoptions as set_printoptions
from needle.torch_names.functions import vstack as vstack
from needle.torch_names.ordering import bucketize as bucketize
from needle.torch_names.ordering import kthvalue as kthvalue
from needle.torch_names.ordering import quantile as quantile
from needle.torch_names.products import cdist as cdist
from needle.torch_names.products import cross as cross
from needle.torch_names.products import kron as kron
from needle.torch_names.products import tensordot as tensordot
from needle.transforms import checkpoint as checkpoint
from needle.transforms import grad as grad
from needle.transforms import hessian as hessian
from needle.transforms import hvp as hvp
from needle.transforms import jacobian as jacobian
from needle.transforms import jvp as jvp
from needle.transforms import value_and_grad as value_and_grad
from needle.transforms import vjp as vjp
from needle.typing import ArrayLike, Axes, DeviceLike, DTypeLike, Key, Number, Operand, Pair, Shape, Tensors
from needle_ndarray import DType
from needle_ndarray import e as e
from needle_ndarray import inf as inf
from needle_ndarray import nan as nan
from needle_ndarray import newaxis as newaxis
from needle_ndarray import pi as pi
from needle_ndarray.config import show_config as show_config
from needle_ndarray.creation import finfo as finfo
from needle_ndarray.creation import iinfo as iinfo
from needle_ndarray.devices import all_devices as all_devices
from needle_ndarray.devices import cpu as cpu
from needle_ndarray.devices import cpu_numpy as cpu_numpy
from needle_ndarray.devices import cuda as cuda
from needle_ndarray.devices import default_device as default_device
from needle_ndarray.devices import device as device
from needle_ndarray.dtypes import bfloat16 as bfloat16
from needle_ndarray.dtypes import can_cast as can_cast
from needle_ndarray.dtypes import dtype as dtype
from needle_ndarray.dtypes import float16 as float16
from needle_ndarray.dtypes import float32 as float32
from needle_ndarray.dtypes import float64 as float64
from needle_ndarray.dtypes import int32 as int32
from needle_ndarray.dtypes import int64 as int64
from needle_ndarray.dtypes import uint8 as uint8
from needle_ndarray.interop import from_dlpack as from_dlpack
from needle_ndarray.layout import broadcast_shapes as broadcast_shapes
from needle_ndarray.ndarray import NDArray as NDArray
from needle_ndarray.threads import get_num_threads as get_num_threads
from needle_ndarray.threads import set_num_threads as set_num_threads

__version__: str

def __dir__() -> list[builtins.str]: ...
def norm(
    a: Tensor,
    p: Any = 2,
    axes: Any = None,
    keepdims: builtins.bool = False,
    *,
    axis: Any = ...,
    dim: Any = ...,
    dims: Any = ...,
    keepdim: builtins.bool = ...,
) -> Tensor: ...
def take_along_dim(a: Tensor, index: Any = ..., dim: builtins.int = ..., *, indices: Any = ...) -> Tensor: ...
def sum(
    a: Tensor,
    axes: Axes = None,
    keepdims: builtins.bool = False,
    *,
    axis: Axes = ...,
    dim: Axes = ...,
    dims: Axes = ...,
    keepdim: builtins.bool = ...,
) -> Tensor: ...
def log_softmax(a: Tensor, axes: Axes = -1, *, axis: Axes = ..., dim: Axes = ..., dims: Axes = ...) -> Tensor: ...
def absolute(a: Tensor) -> Tensor: ...
def negative(a: Tensor) -> Tensor: ...
def true_divide(a: Any, b: Any, *, rounding_mode: str | None = None) -> Tensor: ...
def arcsin(a: Tensor) -> Tensor: ...
def arccos(a: Tensor) -> Tensor: ...
def arctan(a: Tensor) -> Tensor: ...
def arctan2(a: Operand, b: Operand) -> Tensor: ...
def fix(a: Any) -> Any: ...
def positive(a: Any) -> Any: ...
def swapdims(
    a: Tensor,
    axis1: SupportsIndex = ...,
    axis2: SupportsIndex = ...,
    *,
    dim0: SupportsIndex = ...,
    dim1: SupportsIndex = ...,
) -> Tensor: ...
def vdot(a: Tensor, b: Any) -> Tensor: ...
def ger(a: Tensor, b: Any) -> Tensor: ...
def fmax(a: Operand, b: Operand) -> Tensor: ...
def fmin(a: Operand, b: Operand) -> Tensor: ...
def sgn(a: Any) -> Any: ...
def spmm(a: Tensor, b: Any) -> Tensor: ...
def nansum(
    a: Tensor,
    axes: Any = None,
    keepdims: builtins.bool = False,
    *,
    axis: Any = ...,
    dim: Any = ...,
    dims: Any = ...,
    keepdim: builtins.bool = ...,
) -> Tensor: ...
def nanmean(
    a: Tensor,
    axes: Any = None,
    keepdims: builtins.bool = False,
    *,
    axis: Any = ...,
    dim: Any = ...,
    dims: Any = ...,
    keepdim: builtins.bool = ...,
) -> Tensor: ...
def cat(
    tensors: Any, axis: builtins.int = 0, *, axes: builtins.int = ..., dim: builtins.int = ..., dims: builtins.int = ...
) -> Tensor: ...

preserve_format: None
contiguous_format: None
channels_last: None

def concat(
    tensors: Any, axis: builtins.int = 0, *, axes: builtins.int = ..., dim: builtins.int = ..., dims: builtins.int = ...
) -> Tensor: ...

float: DType
double: DType
half: DType
int: DType
long: DType
bool: DType
