"""Functions of one number, as modules.

>>> import needle as ndl
>>> LeakyReLU(0.5)(ndl.Tensor([-2.0, 3.0])).tolist()
[-1.0, 3.0]
"""

from needle import ops
from needle_nn.nn.module import Module


class ReLU(Module):
    """y = max(x, 0)"""

    def forward(self, x):
        return ops.relu(x)


class LeakyReLU(Module):
    """y = x where x > 0, else negative_slope x"""

    def __init__(self, negative_slope=0.01):
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x):
        return ops.where(x > 0, x, x * self.negative_slope)


class Sigmoid(Module):
    """y = 1 / (1 + e^-x)"""

    def forward(self, x):
        return ops.sigmoid(x)


class Tanh(Module):
    """y = tanh x"""

    def forward(self, x):
        return ops.tanh(x)


class GELU(Module):
    """y = x (1 + erf(x / sqrt 2)) / 2"""

    def forward(self, x):
        return ops.gelu(x)


class SiLU(Module):
    """y = x / (1 + e^-x)"""

    def forward(self, x):
        return ops.silu(x)


class Softmax(Module):
    """y = e^x / sum e^x along an axis, the last by default"""

    def __init__(self, axis=-1):
        super().__init__()
        self.axis = axis

    def forward(self, x):
        return ops.softmax(x, self.axis)
