"""Chapter 3 by Needle itself."""

from needle_nn.nn import BatchNorm1d, Dropout, LayerNorm1d, Linear, Module, Parameter, ReLU, Residual, Sequential
from needle_nn.optim import SGD, Adam

__all__ = [
    "SGD", "Adam", "BatchNorm1d", "Dropout", "LayerNorm1d", "Linear", "Module", "Parameter", "ReLU", "Residual", "Sequential",
]  # fmt: skip
