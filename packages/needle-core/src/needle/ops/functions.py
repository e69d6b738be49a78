"""Functions of one number, and the activations made of them."""

import math

from needle.autograd import Tensor, TensorOp, array_api


class Log(TensorOp):
    """y = log x;  dx = dy / x"""

    needs = "inputs"

    def compute(self, x):
        return x.log()

    def gradient(self, out_grad, node):
        return out_grad / node.inputs[0]


class Log1p(TensorOp):
    """y = log(1 + x);  dx = dy / (1 + x)"""

    needs = "inputs"

    def compute(self, x):
        return x.log1p()

    def gradient(self, out_grad, node):
        return out_grad / (node.inputs[0] + 1)


class Exp(TensorOp):
    """y = e^x;  dx = dy y"""

    needs = "output"

    def compute(self, x):
        return x.exp()

    def gradient(self, out_grad, node):
        return out_grad * node


class Expm1(TensorOp):
    """y = e^x - 1;  dx = dy (y + 1)"""

    needs = "output"

    def compute(self, x):
        return x.expm1()

    def gradient(self, out_grad, node):
        return out_grad * (node + 1)


class Sqrt(TensorOp):
    """y = sqrt x;  dx = dy / (2 y)"""

    needs = "output"

    def compute(self, x):
        return x.sqrt()

    def gradient(self, out_grad, node):
        return out_grad / (node * 2)


class Sin(TensorOp):
    """y = sin x;  dx = dy cos x"""

    needs = "inputs"

    def compute(self, x):
        return x.sin()

    def gradient(self, out_grad, node):
        return out_grad * cos(node.inputs[0])


class Cos(TensorOp):
    """y = cos x;  dx = -dy sin x"""

    needs = "inputs"

    def compute(self, x):
        return x.cos()

    def gradient(self, out_grad, node):
        return -out_grad * sin(node.inputs[0])


class Tanh(TensorOp):
    """y = tanh x;  dx = dy (1 - y^2)"""

    needs = "output"

    def compute(self, x):
        return x.tanh()

    def gradient(self, out_grad, node):
        return _TANH_GRAD(out_grad, node)


class TanhGrad(TensorOp):
    """z = g (1 - y^2);  dg = dz (1 - y^2), dy = -2 dz g y"""

    needs = "inputs"

    def compute(self, g, y):
        return array_api.tanh_grad(g, y)

    def gradient(self, out_grad, node):
        g, y = node.inputs
        return _TANH_GRAD(out_grad, y), out_grad * g * y * -2.0


class Sigmoid(TensorOp):
    """y = 1 / (1 + e^-x);  dx = dy y (1 - y)"""

    needs = "output"

    def compute(self, x):
        return x.sigmoid()

    def gradient(self, out_grad, node):
        return _SIGMOID_GRAD(out_grad, node)


class SigmoidGrad(TensorOp):
    """z = g y (1 - y);  dg = dz y (1 - y), dy = dz g (1 - 2 y)"""

    needs = "inputs"

    def compute(self, g, y):
        return array_api.sigmoid_grad(g, y)

    def gradient(self, out_grad, node):
        g, y = node.inputs
        return _SIGMOID_GRAD(out_grad, y), out_grad * g * (1 - y * 2)


class Erf(TensorOp):
    """y = erf x;  dx = dy 2/sqrt(pi) e^(-x^2)"""

    needs = "inputs"

    def compute(self, x):
        return x.erf()

    def gradient(self, out_grad, node):
        x = node.inputs[0]
        return out_grad * (exp(-x * x) * (2 / math.sqrt(math.pi)))


# ---- Activations --------------------------------------------------------------------------


class ReLU(TensorOp):
    """y = max(x, 0);  dx = dy where x > 0, else 0"""

    needs = "output"

    def compute(self, x):
        return x.relu()

    def gradient(self, out_grad, node):
        return _RELU_GRAD(out_grad, node)


class ReLUGrad(TensorOp):
    """z = g where y > 0, else 0;  dg = dz where y > 0, else 0, dy = 0"""

    needs = "inputs"

    def compute(self, g, y):
        return array_api.relu_grad(g, y)

    def gradient(self, out_grad, node):
        return _RELU_GRAD(out_grad, node.inputs[1]), out_grad * 0.0


class GELU(TensorOp):
    """y = x P(x), P(x) = (1 + erf(x / sqrt 2)) / 2;  dx = dy (P(x) + x e^(-x^2/2) / sqrt(2 pi))"""

    needs = "inputs"

    def compute(self, x):
        return array_api.gelu(x)

    def gradient(self, out_grad, node):
        return _GELU_GRAD(out_grad, node.inputs[0])


class GELUGrad(TensorOp):
    """z = g GELU'(x);  dg = dz GELU'(x), dx = dz g (2 - x^2) e^(-x^2/2) / sqrt(2 pi)"""

    needs = "inputs"

    def compute(self, g, x):
        return array_api.gelu_grad(g, x)

    def gradient(self, out_grad, node):
        g, x = node.inputs
        bell = exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
        return _GELU_GRAD(out_grad, x), out_grad * g * (bell * (2 - x * x))


class SiLU(TensorOp):
    """y = x s, s = sigmoid x;  dx = dy s (1 + x (1 - s))"""

    needs = "inputs"

    def compute(self, x):
        return array_api.silu(x)

    def gradient(self, out_grad, node):
        return _SILU_GRAD(out_grad, node.inputs[0])


class SiLUGrad(TensorOp):
    """z = g SiLU'(x);  dg = dz SiLU'(x), dx = dz g s (1 - s) (2 + x (1 - 2 s))"""

    needs = "inputs"

    def compute(self, g, x):
        return array_api.silu_grad(g, x)

    def gradient(self, out_grad, node):
        g, x = node.inputs
        s = sigmoid(x)
        return _SILU_GRAD(out_grad, x), out_grad * g * (s * (1 - s) * (2 + x * (1 - s * 2)))


# ---- The functions --------------------------------------------------------------------------

# These ops hold nothing: one of each does for all calls.
_LOG, _LOG1P, _EXP, _EXPM1, _SQRT, _SIN, _COS, _ERF = Log(), Log1p(), Exp(), Expm1(), Sqrt(), Sin(), Cos(), Erf()
_TANH, _TANH_GRAD, _SIGMOID, _SIGMOID_GRAD = Tanh(), TanhGrad(), Sigmoid(), SigmoidGrad()
_RELU, _RELU_GRAD = ReLU(), ReLUGrad()
_GELU, _GELU_GRAD, _SILU, _SILU_GRAD = GELU(), GELUGrad(), SiLU(), SiLUGrad()


def log(a: Tensor) -> Tensor:
    return _LOG(a)


def log1p(a: Tensor) -> Tensor:
    return _LOG1P(a)


def exp(a: Tensor) -> Tensor:
    return _EXP(a)


def expm1(a: Tensor) -> Tensor:
    return _EXPM1(a)


def sqrt(a: Tensor) -> Tensor:
    return _SQRT(a)


def sin(a: Tensor) -> Tensor:
    return _SIN(a)


def cos(a: Tensor) -> Tensor:
    return _COS(a)


def tanh(a: Tensor) -> Tensor:
    return _TANH(a)


def sigmoid(a: Tensor) -> Tensor:
    return _SIGMOID(a)


def erf(a: Tensor) -> Tensor:
    return _ERF(a)


def relu(a: Tensor) -> Tensor:
    return _RELU(a)


def gelu(a: Tensor) -> Tensor:
    return _GELU(a)


def silu(a: Tensor) -> Tensor:
    return _SILU(a)
