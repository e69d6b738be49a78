"""Second spellings that are methods of Tensor alone."""

import builtins
from typing import Any

import needle_ndarray as nd
from needle import ops, sampling
from needle.autograd import Tensor
from needle.ops.spelling import any_spelling

#: Functions of needle.ops that are methods under the same name.
SAME: dict[str, Any] = {
    name: getattr(ops, name)
    for name in """
    acos acosh amax amin argsort asin asinh atan atan2 atanh bincount bitwise_and bitwise_left_shift bitwise_not bitwise_or
    bitwise_right_shift bitwise_xor ceil chunk cosh count_nonzero cumprod diag diff divide erf expm1 flatten floor floor_divide
    gather gelu greater greater_equal hypot isfinite isin isinf isnan less less_equal log10 log1p log2 logaddexp logical_and
    logical_not logical_or logical_xor maximum minimum moveaxis multiply narrow nonzero prod remainder roll round sign signbit
    silu sinh sort tan tile topk tril triu trunc unique
    """.split()
}


# ---- Shapes -----------------------------------------------------------------------------------------------


def _sizes(given: tuple) -> tuple:
    """Sizes from numbers or one tuple."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


def view(self: Tensor, *shape: Any) -> Tensor:
    """Another shape of the same size; the data is shared where the layout allows, else copied."""
    if len(shape) == 1 and isinstance(shape[0], (nd.DType, builtins.type)):
        raise TypeError(f"view: {shape[0]!r} is a dtype; x.astype(dtype) converts, bits are not reinterpreted")
    return ops.reshape(self, _sizes(shape))


def view_as(self: Tensor, other: Tensor) -> Tensor:
    return ops.reshape(self, other.shape)


def expand(self: Tensor, *sizes: Any) -> Tensor:
    """Repeated along axes of size 1 and new leading ones, without a copy; -1 leaves an axis as it is."""
    given = _sizes(sizes)
    lead = len(given) - self.ndim
    if lead < 0:
        raise ValueError(f"expand: sizes {given} for shape {self.shape}: expected {self.ndim} sizes or more")
    return ops.broadcast_to(self, [self.shape[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(given)])


def expand_as(self: Tensor, other: Tensor) -> Tensor:
    return ops.broadcast_to(self, other.shape)


def repeat(self: Tensor, *sizes: Any) -> Tensor:
    """The whole tensor so many times along each axis, PyTorch's meaning; NumPy's is `repeat_interleave(n, axis)`."""
    given = _sizes(sizes)
    if len(given) < self.ndim:
        raise ValueError(
            f"repeat: {given} for shape {self.shape}: expected {self.ndim} numbers or more;"
            " repeat_interleave(n, axis) repeats each element"
        )
    return ops.tile(self, given)


def split(self: Tensor, split_size_or_sections: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """Pieces of a size, or of several, along an axis: PyTorch's meaning; `ops.split(x, axis)` is the course's."""
    return ops.split_sizes(self, split_size_or_sections, axis)


def dim(self: Tensor) -> int:
    """The number of axes."""
    return self.ndim


def nelement(self: Tensor) -> int:
    """The number of elements."""
    return int(self.size)


def contiguous(self: Tensor, *, memory_format: Any = None) -> Tensor:
    """The tensor: every operator takes data of any layout; memory_format is PyTorch's."""
    return self


def is_contiguous(self: Tensor) -> bool:
    """Whether the elements lie in row-major order without gaps."""
    return self.realize_cached_data().is_compact()


# ---- Dtypes and devices -----------------------------------------------------------------------------------


def _cast_to(name: str, dtype: Any) -> Any:
    def cast(self: Tensor) -> Tensor:
        return ops.astype(self, dtype)

    cast.__name__ = cast.__qualname__ = name
    cast.__doc__ = f"As {dtype}."
    return cast


CASTS = {
    "float": nd.float32,
    "double": nd.float64,
    "half": nd.float16,
    "bfloat16": nd.bfloat16,
    "int": nd.int32,
    "long": nd.int64,
    "bool": nd.bool_,
    "byte": nd.uint8,
}


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """In the dtype of another tensor."""
    return ops.astype(self, other.dtype)


#: PyTorch's older names of dtypes, as functions that make tensors and as texts.
_MAKERS = {"Float": nd.float32, "Double": nd.float64, "Half": nd.float16, "BFloat16": nd.bfloat16, "Long": nd.int64}
_MAKERS |= {"Int": nd.int32, "Byte": nd.uint8, "Bool": nd.bool_}


def type(self: Tensor, dtype: Any = None) -> Any:
    """In another dtype, which may be a function like FloatTensor or its name; without one, the name of its own."""
    if dtype is None:
        return str(self.dtype)
    name = (dtype if isinstance(dtype, str) else getattr(dtype, "__name__", "")).rpartition(".")[2]
    if name.endswith("Tensor"):
        dtype = _MAKERS.get(name.removesuffix("Tensor"), dtype)
    return ops.astype(self, dtype)


def is_floating_point(self: Tensor) -> bool:
    return self.dtype.is_float


def cpu(self: Tensor) -> Tensor:
    """On the CPU: the tensor itself where it is there."""
    return self if self.device in (nd.cpu(), nd.cpu_numpy()) else ops.to_device(self, nd.cpu())


def cuda(self: Tensor, device: Any = None) -> Tensor:
    """On an NVIDIA GPU."""
    return ops.to_device(self, nd.device(device) if isinstance(device, (str, nd.Device)) else nd.cuda(device or 0))


def get_device(self: Tensor) -> int:
    """The number of the GPU, -1 on the CPU."""
    kind, _, number = self.device.name.partition(":")
    return int(number or 0) if kind == "cuda" else -1


# ---- New tensors like this one ----------------------------------------------------------------------------


def new_zeros(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros of a shape, in the dtype and on the device of this tensor unless others are given."""
    return new_full(self, _sizes(size), 0, dtype=dtype, device=device, requires_grad=requires_grad)


def new_ones(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones of a shape, in the dtype and on the device of this tensor unless others are given."""
    return new_full(self, _sizes(size), 1, dtype=dtype, device=device, requires_grad=requires_grad)


def new_empty(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """As `new_zeros`."""
    return new_full(self, _sizes(size), 0, dtype=dtype, device=device, requires_grad=requires_grad)


def new_full(
    self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A number everywhere, in the dtype and on the device of this tensor unless others are given."""
    made = nd.full(size, fill_value, dtype or self.dtype, self.device if device is None else device)
    return Tensor.make_const(made, requires_grad=requires_grad)


def new_tensor(
    self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A copy of numbers, in the dtype and on the device of this tensor unless others are given."""
    where = self.device if device is None else device
    return Tensor(data, device=where, dtype=dtype or self.dtype, requires_grad=requires_grad)


# ---- Other orders of arguments ----------------------------------------------------------------------------


def where(self: Tensor, condition: Any, other: Any) -> Tensor:
    """self where the condition holds, else other."""
    return ops.where(condition, self, other)


def detach_(self: Tensor) -> Tensor:
    raise TypeError("detach_: a tensor keeps what it was made of; x.detach() is the same data without a graph")


_OWN = [f for f in list(globals().values()) if getattr(f, "__module__", None) == __name__ and f.__name__[0] != "_"]
METHODS: dict[str, Any] = {f.__name__: any_spelling(f) for f in _OWN}
METHODS |= {name: _cast_to(name, dtype) for name, dtype in CASTS.items()}
METHODS |= {"reshape_as": view_as, "is_cuda": property(lambda self: self.device.name.startswith("cuda"))}
METHODS |= {"is_cpu": property(lambda self: not self.device.name.startswith("cuda"))}
METHODS |= {
    name: property(lambda self: False) for name in ("is_sparse", "is_quantized", "is_mps", "is_meta", "is_nested")
}
METHODS |= {"itemsize": property(lambda self: self.dtype.itemsize), "ndimension": dim, "new": METHODS["new_empty"]}
METHODS |= {"grad_fn": property(lambda self: self.op if self.requires_grad else None)}
METHODS |= {"multinomial": sampling.multinomial, "bernoulli": sampling.bernoulli}
