"""A weight as a function of other parameters.

>>> from needle import nn
>>> [name for name, _ in weight_norm(nn.Linear(3, 2)).named_parameters()]
['module.bias', 'direction', 'length']
"""

from typing import Any

from needle_nn.nn.norms import WeightNorm

__all__ = ["weight_norm"]


def weight_norm(module: Any, name: str = "weight", dim: int = 0) -> WeightNorm:
    """`WeightNorm(module)`: a module around the one that is given, with one length for each output.

    Parameters
    ----------
    module, name : the layer, and its weight
    dim : 0, PyTorch's axis of the outputs, which is the last one here
    """
    if dim != 0:
        raise ValueError(
            f"weight_norm: dim {dim}: expected 0, the outputs; WeightNorm(module, axis=...) takes any axis"
        )
    return WeightNorm(module, name)
