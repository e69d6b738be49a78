"""Linear maps, embeddings, dropout."""

from typing import Any

from needle import init, ops
from needle.autograd import Tensor
from needle.typing import DeviceLike, DTypeLike
from needle_nn.checks import check_flag
from needle_nn.nn import axes
from needle_nn.nn.functional import maps
from needle_nn.nn.module import Module, Parameter, check_sizes, expect


class Identity(Module):
    """y = x; arguments are taken, as PyTorch's Identity does, and ignored"""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        return x


class Linear(Module):
    """y = x W + b: (..., in_features) -> (..., out_features).

    Parameters
    ----------
    in_features, out_features : sizes; the weight has shape (in_features, out_features), the bias (1, out_features)
    bias : whether there is one

    Both are drawn by `kaiming_uniform`. Within `needle.compat("torch")` they are PyTorch's: from U(-1/sqrt(in_features),
    1/sqrt(in_features)), the weight (out_features, in_features), the bias (out_features,).

    >>> import needle as ndl
    >>> Linear(3, 2)(ndl.ones(4, 5, 3)).shape
    (4, 5, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        check_sizes(self, in_features=in_features, out_features=out_features)
        check_flag(type(self).__name__, "bias", bias)
        self.in_features, self.out_features = in_features, out_features
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        drawn: Any
        if self.as_torch:
            made |= {"low": -(in_features**-0.5), "high": in_features**-0.5}
            weight, drawn = (init.rand(n, out_features, **made) for n in (in_features, 1))
        else:
            weight = init.kaiming_uniform(in_features, out_features, **made)
            drawn = init.kaiming_uniform(out_features, 1, **made) if bias else None
        self.weight = Parameter(axes.kept(self, weight, axes.LINEAR))
        self.bias = Parameter(drawn.reshape((1, out_features)[self.as_torch :])) if bias else None

    def matrix(self) -> Tensor:
        """The weight as (in_features, out_features)."""
        return axes.used(self, self.weight, axes.LINEAR)

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape
        if not shape or shape[-1] != self.in_features:
            expect(self, x, ..., self.in_features)
        bias = self.bias if len(shape) > 1 or self.bias is None else self.bias.reshape(-1)
        return ops.linear(x, self.matrix() if self.as_torch else self.weight, bias)


class Bilinear(Module):
    """y_k = x1^T W_k x2 + b_k: (..., in1), (..., in2) -> (..., out); W (out, in1, in2) and b from U(-1/sqrt(in1), 1/sqrt(in1))"""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        check_sizes(self, in1_features=in1_features, in2_features=in2_features, out_features=out_features)
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        bound = in1_features**-0.5
        shape = (out_features, in1_features, in2_features)
        self.weight = Parameter(init.rand(*shape, low=-bound, high=bound, **made))
        self.bias = Parameter(init.rand(out_features, low=-bound, high=bound, **made)) if bias else None

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return maps.bilinear(x1, x2, self.weight, self.bias)

    out_features = property(lambda self: self.weight.shape[0])
    in1_features = property(lambda self: self.weight.shape[1])
    in2_features = property(lambda self: self.weight.shape[2])


class Embedding(Module):
    """y = weight[ids]: ids of any shape, whole floats too, -> ids.shape + (embedding_dim,); weight ~ N(0, 1).

    Parameters
    ----------
    num_embeddings, embedding_dim : sizes of the weight
    padding_idx : a row that starts at 0 and gets no gradient
    sparse : PyTorch's; of no effect, gradients are dense

    >>> import needle as ndl
    >>> Embedding(10, 4)(ndl.Tensor([[1.0, 9.0, 1.0]])).shape
    (1, 3, 4)
    """

    padding_idx = None

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
        *,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(device, int):  # PyTorch's third argument
            device, padding_idx = None, device
        if max_norm is not None:
            raise ValueError(f"{type(self).__name__}: max_norm {max_norm}: rows keep their norms here; expected None")
        check_sizes(self, num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Parameter(init.randn(num_embeddings, embedding_dim, device=device, dtype=dtype))
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(f"Embedding: padding_idx {padding_idx}: expected one of {num_embeddings} rows")
            self.padding_idx = padding_idx % num_embeddings
            self.weight.realize_cached_data()[self.padding_idx] = 0.0

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None) -> "Embedding":
        """An Embedding with these rows, (num_embeddings, embedding_dim); they are not trained if `freeze`."""
        rows, width = embeddings.shape
        made = cls(rows, width, embeddings.device, embeddings.dtype, padding_idx=padding_idx)
        made.weight = Parameter(embeddings)
        made.weight.requires_grad_(not freeze)
        return made

    def forward(self, ids: Any) -> Tensor:
        if self.padding_idx is None:
            return ops.embedding(ids, self.weight)
        return maps.embedding(ids, self.weight, self.padding_idx)

    def rows(self, which: slice) -> Tensor:
        """weight[which]: the rows of a slice."""
        return self.weight[which]

    def as_linear(self, x: Tensor) -> Tensor:
        """y = x weight^T: (..., embedding_dim) -> (..., num_embeddings), the map to the vocabulary of models that tie it."""
        return x @ self.weight.transpose()


class EmbeddingBag(Embedding):
    """y = mean, or sum, of weight[ids] over each bag of ids: (N, L) -> (N, embedding_dim), or all ids in a row, with offsets.

    >>> import needle as ndl
    >>> EmbeddingBag(10, 4)(ndl.tensor([1, 2, 4, 5, 4]), ndl.tensor([0, 3])).shape
    (2, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        mode: str = "mean",
        *,
        padding_idx: int | None = None,
        sparse: bool = False,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, device, dtype, padding_idx=padding_idx)
        if mode not in ("mean", "sum"):
            raise ValueError(f"EmbeddingBag: mode {mode!r}: expected 'mean' or 'sum'")
        self.mode = mode

    def forward(self, ids: Any, offsets: Any = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return maps.embedding_bag(
            ids,
            self.weight,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            padding_idx=self.padding_idx,
        )


class Dropout(Module):
    """y = x m / (1 - p) in training, m ~ Bernoulli(1 - p); y = x in evaluation"""

    function: Any = staticmethod(ops.dropout)

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if isinstance(p, str) or not 0 <= p < 1:
            raise ValueError(f"{type(self).__name__}: p = {p!r}: expected a number from 0, below 1")
        check_flag(type(self).__name__, "inplace", inplace)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.p, self.training)


class Dropout1d(Dropout):
    """`Dropout` of whole channels: (N, C, L)"""

    function = staticmethod(maps.dropout1d)


class Dropout2d(Dropout):
    """`Dropout` of whole channels: (N, C, H, W)"""

    function = staticmethod(maps.dropout2d)


class AlphaDropout(Dropout):
    """y = a (x m - 1.758 (1 - m)) + b in training, m ~ Bernoulli(1 - p): keeps mean 0 and variance 1 after `SELU`"""

    function = staticmethod(maps.alpha_dropout)


class CosineSimilarity(Module):
    """y = x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along an axis"""

    def __init__(self, dim: int = 1, eps: float = 1e-08) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return maps.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """y = |x1 - x2 + eps|_p along the last axis"""

    def __init__(self, p: float = 2.0, eps: float = 1e-06, keepdim: bool = False) -> None:
        super().__init__()
        self.p, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return maps.pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)
