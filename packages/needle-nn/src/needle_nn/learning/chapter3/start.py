"""Chapter 3: modules and optimizers.

The text is in chapter3.md; `needle learn check 3` checks this file.

Arithmetic is Needle's: tensors have + - * / ** @, .sum(axes), .mean(axes), .reshape(shape), .broadcast_to(shape), and broadcast as
NumPy's arrays do; ndl.ops has the rest. Replace each `raise NotImplementedError` by your code.
"""

import needle as ndl
from needle import init


class Parameter(ndl.Tensor):
    """A tensor that is trained."""


class Module:
    """A function with parameters, which are attributes, as are the modules within it."""

    def __init__(self):
        self.training = True

    def __call__(self, *inputs):
        return self.forward(*inputs)

    def parameters(self):
        """All parameters in a list, each once, in the order of the attributes; also of modules in lists, tuples and dicts."""
        raise NotImplementedError

    def train(self):
        """Set `training` to True here and in all modules within."""
        raise NotImplementedError

    def eval(self):
        """Set `training` to False here and in all modules within."""
        raise NotImplementedError


class ReLU(Module):
    def forward(self, x):
        return ndl.relu(x)


class Linear(Module):
    """y = x W + b; `weight` is (in_features, out_features), `bias` (1, out_features)"""

    def __init__(self, in_features, out_features):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):
        raise NotImplementedError


class Sequential(Module):
    """One module after the other"""

    def __init__(self, *modules):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):
        raise NotImplementedError


class Residual(Module):
    """y = f(x) + x"""

    def __init__(self, fn):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):
        raise NotImplementedError


class Dropout(Module):
    """In training y = x m / (1 - p), m 0 with probability p, else 1 (see init.randb); in evaluation y = x"""

    def __init__(self, p=0.5):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):
        raise NotImplementedError


class LayerNorm1d(Module):
    """y = (x - mean) / sqrt(var + eps) w + b along the last axis of x (N, dim); `weight` starts at 1, `bias` at 0, both (dim,)"""

    def __init__(self, dim, eps=1e-5):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):
        raise NotImplementedError


class BatchNorm1d(Module):
    """y = (x - mean) / sqrt(var + eps) w + b along axis 0 of x (N, dim); in evaluation with running_mean and running_var"""

    def __init__(self, dim, eps=1e-5, momentum=0.1):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):
        raise NotImplementedError


class SGD:
    """u = momentum u + (1 - momentum) (grad + weight_decay p);  p = p - lr u"""

    def __init__(self, params, lr=0.01, momentum=0.0, weight_decay=0.0):
        raise NotImplementedError

    def step(self):
        """Change the parameters that have a gradient."""
        raise NotImplementedError


class Adam:
    """The formula of the text, with bias correction"""

    def __init__(self, params, lr=0.01, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0):
        raise NotImplementedError

    def step(self):
        """Change the parameters that have a gradient."""
        raise NotImplementedError
