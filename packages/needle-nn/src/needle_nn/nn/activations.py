"""Functions of one number, and of the numbers along an axis, as modules.

>>> import needle as ndl
>>> LeakyReLU(0.5)(ndl.Tensor([-2.0, 3.0])).tolist()
[-1.0, 3.0]
>>> Softmax(dim=0)(ndl.zeros(2)).tolist()
[0.5, 0.5]
"""

from needle import init, ops
from needle.autograd import Tensor
from needle.typing import DeviceLike, DTypeLike
from needle_nn.checks import check_flag
from needle_nn.nn.functional import activations as functions
from needle_nn.nn.module import Module, Parameter, check_sizes


class _Pointwise(Module):
    """A function of every number. `inplace` is taken, as PyTorch's layers do, and changes nothing: a result is always new."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        check_flag(type(self).__name__, "inplace", inplace)


class ReLU(_Pointwise):
    """y = max(x, 0)"""

    def forward(self, x: Tensor) -> Tensor:
        return ops.relu(x)


class ReLU6(_Pointwise):
    """y = min(max(x, 0), 6)"""

    def forward(self, x: Tensor) -> Tensor:
        return functions.relu6(x)


class LeakyReLU(_Pointwise):
    """y = x where x > 0, else negative_slope x"""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        return functions.leaky_relu(x, self.negative_slope)


class PReLU(Module):
    """y = x where x > 0, else weight x: a weight for all channels, or for every one of num_parameters, (N, C, ...)"""

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: DeviceLike = None, dtype: DTypeLike = "float32"
    ) -> None:
        super().__init__()
        check_sizes(self, num_parameters=num_parameters)
        self.num_parameters = num_parameters
        self.weight = Parameter(_constant(num_parameters, init, device, dtype))

    def forward(self, x: Tensor) -> Tensor:
        return functions.prelu(x, self.weight)


def _constant(n, value, device, dtype):
    return init.constant(n, c=value, device=device, dtype=dtype)


class ELU(_Pointwise):
    """y = x where x > 0, else alpha (e^x - 1)"""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        return functions.elu(x, self.alpha)


class CELU(ELU):
    """y = x where x > 0, else alpha (e^(x / alpha) - 1)"""

    def forward(self, x: Tensor) -> Tensor:
        return functions.celu(x, self.alpha)


class SELU(_Pointwise):
    """y = scale elu(x, alpha), with the numbers that keep mean 0 and variance 1"""

    def forward(self, x: Tensor) -> Tensor:
        return functions.selu(x)


class GELU(Module):
    """y = x (1 + erf(x / sqrt 2)) / 2; with approximate="tanh" x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2"""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        if approximate not in ("none", "tanh"):
            raise ValueError(f"GELU: approximate = {approximate!r}: expected 'none' or 'tanh'")
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return ops.gelu(x) if self.approximate == "none" else functions.gelu(x, self.approximate)

    def _settings(self):
        return "" if self.approximate == "none" else "approximate='tanh'"


class SiLU(_Pointwise):
    """y = x / (1 + e^-x)"""

    def forward(self, x: Tensor) -> Tensor:
        return ops.silu(x)


class Mish(_Pointwise):
    """y = x tanh(log(1 + e^x))"""

    def forward(self, x: Tensor) -> Tensor:
        return functions.mish(x)


class Softplus(Module):
    """y = log(1 + e^(beta x)) / beta; it never overflows, so that PyTorch's threshold is not needed"""

    def __init__(self, beta: float = 1.0, threshold: float | None = None) -> None:
        super().__init__()
        self.beta = beta

    def forward(self, x: Tensor) -> Tensor:
        return functions.softplus(x, self.beta)


class Softsign(Module):
    """y = x / (1 + |x|)"""

    def forward(self, x: Tensor) -> Tensor:
        return functions.softsign(x)


class Sigmoid(Module):
    """y = 1 / (1 + e^-x)"""

    def forward(self, x: Tensor) -> Tensor:
        return ops.sigmoid(x)


class LogSigmoid(Module):
    """y = log(1 / (1 + e^-x))"""

    def forward(self, x: Tensor) -> Tensor:
        return functions.logsigmoid(x)


class Hardsigmoid(_Pointwise):
    """y = min(max(x + 3, 0), 6) / 6"""

    def forward(self, x: Tensor) -> Tensor:
        return functions.hardsigmoid(x)


class Hardswish(_Pointwise):
    """y = x min(max(x + 3, 0), 6) / 6"""

    def forward(self, x: Tensor) -> Tensor:
        return functions.hardswish(x)


class Tanh(Module):
    """y = tanh x"""

    def forward(self, x: Tensor) -> Tensor:
        return ops.tanh(x)


class Hardtanh(_Pointwise):
    """y = min(max(x, min_val), max_val)"""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Tensor) -> Tensor:
        return functions.hardtanh(x, self.min_val, self.max_val)


class Tanhshrink(Module):
    """y = x - tanh x"""

    def forward(self, x: Tensor) -> Tensor:
        return functions.tanhshrink(x)


class Softshrink(Module):
    """y = x - lambd where x > lambd, x + lambd where x < -lambd, else 0"""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, x: Tensor) -> Tensor:
        return functions.softshrink(x, self.lambd)


class Hardshrink(Softshrink):
    """y = x where |x| > lambd, else 0"""

    def forward(self, x: Tensor) -> Tensor:
        return functions.hardshrink(x, self.lambd)


class Threshold(_Pointwise):
    """y = x where x > threshold, else value"""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold, self.value = threshold, value

    def forward(self, x: Tensor) -> Tensor:
        return functions.threshold(x, self.threshold, self.value)


# ---- Along an axis ------------------------------------------------------------------------------------------------------


class Softmax(Module):
    """y = e^x / sum e^x along an axis, the last by default; `dim` is PyTorch's name for it"""

    function = staticmethod(functions.softmax)

    def __init__(self, axis: int = -1, *, dim: int | None = None) -> None:
        super().__init__()
        self.axis = axis if dim is None else dim

    @property
    def dim(self) -> int:
        return self.axis

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.axis)


class Softmin(Softmax):
    """y = e^-x / sum e^-x along an axis, the last by default"""

    function = staticmethod(functions.softmin)


class LogSoftmax(Softmax):
    """y = x - log sum e^x along an axis, the last by default"""

    function = staticmethod(functions.log_softmax)


class GLU(Softmax):
    """y = a sigmoid(b), a and b the halves of x along an axis, the last by default"""

    function = staticmethod(functions.glu)
