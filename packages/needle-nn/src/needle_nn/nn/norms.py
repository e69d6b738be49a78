"""Normalisation: y = (x - mean) / sqrt(var + eps) w + b; layers differ in what the mean and variance are taken over.

>>> import needle as ndl
>>> x = ndl.init.randn(4, 6, 5, 5)
>>> [norm(x).shape for norm in (BatchNorm2d(6), GroupNorm(3, 6), InstanceNorm(6))]
[(4, 6, 5, 5), (4, 6, 5, 5), (4, 6, 5, 5)]
>>> bool(abs(LayerNorm1d(5)(x).numpy().mean(axis=-1)).max() < 1e-6)
True
"""

from typing import Any, SupportsIndex

from needle import Tensor, init, no_grad, ops
from needle.ops.network import batch_norm
from needle.typing import DeviceLike, DTypeLike, Shape
from needle_nn.nn.functional import maps
from needle_nn.nn.module import Module, Parameter, check_sizes, expect


def _as(x, weight, bias):
    """Parameters in the dtype of x: float64 data may go through a float32 network, as NumPy lets it."""
    if weight is None or bias is None:
        return weight if weight is None else weight.astype(x.dtype), bias
    dtype = x.dtype
    return (weight, bias) if weight.dtype is bias.dtype is dtype else (weight.astype(dtype), bias.astype(dtype))


def _one_of(layer: Module, **names: Any) -> Any:
    """The argument that was given, under either of its names."""
    given = [value for value in names.values() if value is not None]
    if len(given) != 1:
        raise TypeError(f"{type(layer).__name__}: expected one of {' and '.join(names)}, got {len(given)}")
    return given[0]


class BatchNorm1d(Module):
    """y = (x - mean) / sqrt(var + eps) w + b for every channel: (N, dim) or (N, dim, ...).

    In training, mean and (biased) variance are those of the batch, and running = (1 - momentum) running + momentum new; in
    evaluation they are the running ones. A layer made within `needle.compat("torch")` keeps PyTorch's running variance, the
    unbiased one, and counts batches.

    Parameters
    ----------
    dim, num_features : how many channels
    momentum : weight of the new; None: the mean over all batches, of layers made within `needle.compat("torch")`
    affine : whether there are w and b
    track_running_stats : whether there are running statistics; else those of the batch are for evaluation too
    """

    num_batches_tracked: Tensor  # there if the layer was made within compat("torch")

    def __init__(
        self,
        dim: int | None = None,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
        *,
        affine: bool = True,
        track_running_stats: bool = True,
        num_features: int | None = None,
    ) -> None:
        super().__init__()
        dim = _one_of(self, dim=dim, num_features=num_features)
        self.dim, self.eps, self.momentum = dim, eps, momentum
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = Parameter(init.ones(dim, **made)) if affine else None
        self.bias = Parameter(init.zeros(dim, **made)) if affine else None
        self.running_mean = init.zeros(dim, **made) if track_running_stats else None
        self.running_var = init.ones(dim, **made) if track_running_stats else None
        if self.as_torch:
            counter = Tensor(0, device=device, dtype="int64", requires_grad=False) if track_running_stats else None
            self.register_buffer("num_batches_tracked", counter)
        elif momentum is None:
            raise ValueError(
                f"{type(self).__name__}: momentum None: batches are counted within needle.compat('torch') only"
            )

    def reset_running_stats(self) -> None:
        """Running statistics as they are at first: mean 0, variance 1, no batches."""
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.realize_cached_data()[...] = 0
            self.running_var.realize_cached_data()[...] = 1
            if self.as_torch:
                self.num_batches_tracked.realize_cached_data()[...] = 0

    @property
    def num_features(self) -> int:
        return self.dim

    @property
    def affine(self) -> bool:
        return self.weight is not None

    @property
    def track_running_stats(self) -> bool:
        return self.running_mean is not None

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape
        if len(shape) < 2 or shape[1] != self.dim:
            raise ValueError(f"{type(self).__name__}: input has shape {shape}, expected (N, {self.dim}, ...)")
        weight, bias = _as(x, self.weight, self.bias)
        if self.as_torch and self.training and self.running_mean is not None:
            with no_grad():
                self.num_batches_tracked.add_(1)
        return batch_norm(
            x,
            weight,
            bias,
            running_mean=self.running_mean,
            running_var=self.running_var,
            training=self.training or self.running_mean is None,
            momentum=self._weight_of_new() if self.momentum is None else self.momentum,
            eps=self.eps,
            unbiased=self.as_torch,
        )

    def _weight_of_new(self) -> float:
        """1 / batches: the running statistics are the mean over all of them."""
        counted = self.training and self.running_mean is not None
        return 1 / int(self.num_batches_tracked.item()) if counted else 0.0


class BatchNorm2d(BatchNorm1d):
    """`BatchNorm1d` of images: (N, dim, H, W)"""

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, "N", self.dim, "H", "W")
        return super().forward(x)


class LayerNorm1d(Module):
    """y = (x - mean) / sqrt(var + eps) w + b along the last axis: (..., dim)"""

    def __init__(self, dim: Any, eps: float = 1e-05, device: DeviceLike = None, dtype: DTypeLike = "float32") -> None:
        super().__init__()
        self.dim, self.eps = dim, eps
        self.weight = Parameter(init.ones(dim, device=device, dtype=dtype))
        self.bias = Parameter(init.zeros(dim, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, ..., self.dim)
        weight, bias = _as(x, self.weight, self.bias)
        return ops.layer_norm(x, weight, bias, self.eps)


class LayerNorm(Module):
    """y = (x - mean) / sqrt(var + eps) w + b over the last axes: (..., *normalized_shape)

    Parameters
    ----------
    normalized_shape : sizes of these axes, or an int for the last one
    elementwise_affine, bias : whether there are w and b; whether there is b

    >>> import needle as ndl
    >>> LayerNorm((3, 4))(ndl.ones(2, 3, 4)).shape
    (2, 3, 4)
    """

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float = 1e-05,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps = _sizes(self, normalized_shape), eps
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = Parameter(init.ones(*self.normalized_shape, **made)) if elementwise_affine else None
        self.bias = Parameter(init.zeros(*self.normalized_shape, **made)) if elementwise_affine and bias else None

    @property
    def elementwise_affine(self) -> bool:
        return self.weight is not None

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, ..., *self.normalized_shape)
        if len(self.normalized_shape) > 1:
            return maps.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        weight, bias = _as(x, self.weight, self.bias)
        return ops.layer_norm(x, weight, bias, self.eps)


def _sizes(layer, shape):
    """A shape from sizes or one size."""
    sizes = (shape,) if hasattr(type(shape), "__index__") else tuple(shape)
    for n in sizes:
        check_sizes(layer, normalized_shape=n)
    if not sizes:
        raise ValueError(f"{type(layer).__name__}: normalized_shape is empty: expected one size or more")
    return sizes


class RMSNorm(Module):
    """y = x / sqrt(mean x^2 + eps) w over the last axis, (..., dim), or the last axes where dim is a shape"""

    def __init__(
        self,
        dim: Any = None,
        eps: float = 1e-05,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
        *,
        elementwise_affine: bool = True,
        normalized_shape: Any = None,
    ) -> None:
        super().__init__()
        dim = _one_of(self, dim=dim, normalized_shape=normalized_shape)
        self.dim, self.eps = dim, eps
        made = init.ones(*_sizes(self, dim), device=device, dtype=dtype)
        self.weight = Parameter(made) if elementwise_affine else None

    @property
    def normalized_shape(self) -> tuple[int, ...]:
        return _sizes(self, self.dim)

    @property
    def elementwise_affine(self) -> bool:
        return self.weight is not None

    def forward(self, x: Tensor) -> Tensor:
        sizes = (self.dim,) if isinstance(self.dim, int) else tuple(self.dim)
        expect(self, x, ..., *sizes)
        return maps.rms_norm(x, sizes, self.weight, self.eps)


class GroupNorm(Module):
    """y = (x - mean) / sqrt(var + eps) w + b over every group of channels of every example: (N, num_channels, ...)"""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-05,
        affine: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"GroupNorm: {num_channels} channels do not make {num_groups} groups")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Parameter(init.ones(num_channels, device=device, dtype=dtype)) if affine else None
        self.bias = Parameter(init.zeros(num_channels, device=device, dtype=dtype)) if affine else None

    @property
    def affine(self) -> bool:
        return self.weight is not None

    @property
    def num_features(self) -> int:
        return self.num_channels

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ValueError(
                f"{type(self).__name__}: input has shape {x.shape}, expected (N, {self.num_channels}, ...)"
            )
        return maps.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class InstanceNorm(GroupNorm):
    """y = (x - mean) / sqrt(var + eps) [w + b] over every channel of every example: (N, num_features, ...)"""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        affine: bool = False,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(num_features, num_features, eps, affine, device, dtype)


class InstanceNorm2d(InstanceNorm):
    """`InstanceNorm` of images, (N, num_features, H, W), with PyTorch's arguments; there are no running statistics"""

    axes = "NCHW"

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        if track_running_stats:
            raise ValueError(f"{type(self).__name__}: track_running_stats: expected False; BatchNorm2d tracks them")
        super().__init__(num_features, eps, affine, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, "N", self.num_channels, *self.axes[2:])
        return super().forward(x)


class InstanceNorm1d(InstanceNorm2d):
    """`InstanceNorm2d` of sequences, (N, num_features, L)"""

    axes = "NCL"


class WeightNorm(Module):
    """W = g v / |v|: the weight of another layer as length g times direction v, one length for each entry of an axis.

    Parameters
    ----------
    module : the layer; its weight becomes `direction`, and the first output stays what it was
    name : of the weight
    axis : of the outputs, by default the last one, as in Linear and the convolutions; the first where the module has PyTorch's axes

    >>> from needle import nn
    >>> [(name, p.shape) for name, p in nn.WeightNorm(nn.Linear(3, 2)).named_parameters()]
    [('module.bias', (1, 2)), ('direction', (3, 2)), ('length', (1, 2))]
    """

    def __init__(self, module: Module, name: str = "weight", axis: SupportsIndex | None = None) -> None:
        super().__init__()
        if axis is None:
            axis = 0 if module.as_torch else -1
        weight = getattr(module, name)
        delattr(module, name)
        self.module, self.name = module, name
        self.axes = tuple([i for i in range(weight.ndim) if i != axis % weight.ndim])
        self.direction = weight
        self.length = Parameter(ops.sqrt((weight * weight).sum(self.axes, keepdims=True)))

    def forward(self, *args: Any) -> Any:
        v = self.direction
        self.module.__dict__[self.name] = v * (self.length / ops.sqrt((v * v).sum(self.axes, keepdims=True)))
        try:
            return self.module(*args)
        finally:
            delattr(self.module, self.name)  # made of parameters: no part of the state
