"""Weights of eight bits for inference: a quarter of the memory of float32, and with few rows of input nearly a quarter of the time.

A weight is a byte q that means (q - 128) scale, with a scale for each output of a Linear, and for each row of an Embedding. The
scale is the largest weight over 127, so no weight is off by more than half of it. There is no `weight`: code that reads the one of
a Linear gets an error here, not the wrong numbers.

>>> import needle as ndl
>>> model = quantize(ndl.nn.Sequential(ndl.nn.Linear(64, 32), ndl.nn.ReLU(), ndl.nn.Linear(32, 8)))
>>> model[0].bytes.dtype, model(ndl.ones(2, 64)).shape
('uint8', (2, 8))
"""

from collections.abc import Callable
from typing import Any

import needle_ndarray as nd
from needle import Tensor, TensorOp, ops
from needle_nn.nn.basic import Embedding, Linear
from needle_nn.nn.module import Module, expect

__all__ = ["QuantizedEmbedding", "QuantizedLinear", "quantize"]

ZERO = 128  # the byte that means 0


def quantized(weight: nd.NDArray, axis: int) -> tuple[Tensor, Tensor]:
    """(bytes, scales) of a weight, with a scale for each entry along the axis that is not reduced: q = round(w / scale) + 128.

    Parameters
    ----------
    weight : of floats that are finite
    axis : over which the largest is looked for
    """
    wide = weight.astype("float32")
    if not bool(nd.isfinite(wide).all()):
        raise ValueError(f"quantize: a weight of shape {weight.shape} has NaN or infinite entries")
    scale = nd.abs(wide).max(axis, keepdims=True) / 127.0
    scale = nd.where(scale == 0.0, 1.0, scale)
    q = nd.round(wide / scale).clip(-127.0, 127.0) + float(ZERO)
    return Tensor.make_const(q.astype("uint8")), Tensor.make_const(scale.reshape(-1))


class Product(TensorOp):
    """y = x W, W = (q - 128) scale;  dx = dy W^T, and nothing for W, which is not trained"""

    needs = "inputs"

    def compute(self, x: Any, q: Any, scale: Any) -> Any:
        made = nd.matmul_weight(x.astype("float32", copy=False), q, scale.astype("float32", copy=False))
        return made if x.dtype == "float32" else made.astype(x.dtype)

    def gradient(self, out_grad: Any, node: Any) -> Any:
        _, q, scale = node.inputs
        return (out_grad * scale) @ (ops.astype(q, "float32") - ZERO).transpose(), None, None


class QuantizedLinear(Module):
    """y = x W + b with W of eight bits and a scale for each output: (..., in_features) -> (..., out_features).

    Parameters
    ----------
    linear : the layer whose weight is rounded; its bias is kept as it is

    >>> import needle as ndl
    >>> layer = ndl.nn.Linear(3, 2)
    >>> QuantizedLinear(layer)
    QuantizedLinear(in_features=3, out_features=2)
    """

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bytes, self.scale = quantized(linear.matrix().realize_cached_data(), 0)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, ..., self.in_features)
        y = Product()(x, self.bytes, self.scale)
        return y if self.bias is None else y + self.bias.reshape((self.out_features,))


class QuantizedEmbedding(Module):
    """y = (rows[ids] - 128) scale[ids], of eight bits with a scale for each row: ids.shape + (embedding_dim,).

    Parameters
    ----------
    embedding : the layer whose weight is rounded

    >>> import needle as ndl
    >>> QuantizedEmbedding(ndl.nn.Embedding(10, 4))([[1, 2, 3]]).shape
    (1, 3, 4)
    """

    def __init__(self, embedding: Embedding) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = embedding.num_embeddings, embedding.embedding_dim
        self.bytes, self.scale = quantized(embedding.weight.realize_cached_data(), 1)

    def forward(self, ids: Any) -> Tensor:
        return self._widened(ops.embedding(ids, self.bytes), ops.embedding(ids, self._column()))

    def rows(self, which: slice) -> Tensor:
        """Those of a slice."""
        return self._widened(self.bytes[which], self._column()[which])

    def as_linear(self, x: Tensor) -> Tensor:
        """y = x W^T for the rows W: (..., embedding_dim) -> (..., num_embeddings)."""
        expect(self, x, ..., self.embedding_dim)
        return Product()(x, self.bytes.transpose(), self.scale)

    def _column(self) -> Tensor:
        return self.scale.reshape((self.num_embeddings, 1))

    def _widened(self, q: Tensor, scale: Tensor) -> Tensor:
        return (ops.astype(q, "float32") - ZERO) * scale


def quantize(model: Any, embeddings: bool = False, keep: Callable[[str, Module], bool] | None = None) -> Any:
    """Make the Linears of a model layers of eight bits, for inference; returns the model. They stay the objects they are.

    Parameters
    ----------
    embeddings : those, too; a model that maps to its vocabulary by the weight of one asks it for that: `embedding.as_linear(x)`
    keep : a function of a layer's name and the layer, True where it stays as it is

    A state is loaded after the model was made the same way: `quantize(Model()).load_state_dict(load(path))`.
    """
    for name, layer in list(model.named_modules()):
        if keep is not None and keep(name, layer):
            continue
        if isinstance(layer, Linear):
            _become(layer, QuantizedLinear(layer))
        elif embeddings and type(layer) is Embedding:
            _become(layer, QuantizedEmbedding(layer))
    return model


def _become(layer: Module, made: Module) -> None:
    """Wherever a layer is known, it is the other one from now on."""
    made.training = layer.training
    layer.__class__, layer.__dict__ = type(made), made.__dict__
