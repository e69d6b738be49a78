"""Linear maps, embeddings, dropout, shapes."""

from needle import init, ops
from needle_nn.checks import check_flag
from needle_nn.nn.module import Module, Parameter, check_sizes, expect


class Identity(Module):
    """y = x"""

    def forward(self, x):
        return x


class Linear(Module):
    """y = x W + b: (..., in_features) -> (..., out_features).

    Parameters
    ----------
    in_features, out_features : sizes; the weight has shape (in_features, out_features), the bias (1, out_features)
    bias : whether there is one

    >>> import needle as ndl
    >>> Linear(3, 2)(ndl.ones(4, 5, 3)).shape
    (4, 5, 2)
    """

    def __init__(self, in_features, out_features, bias=True, device=None, dtype="float32"):
        super().__init__()
        check_sizes(self, in_features=in_features, out_features=out_features)
        check_flag(type(self).__name__, "bias", bias)
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(init.kaiming_uniform(in_features, out_features, device=device, dtype=dtype))
        self.bias = None
        if bias:
            drawn = init.kaiming_uniform(out_features, 1, device=device, dtype=dtype)
            self.bias = Parameter(drawn.reshape((1, out_features)))

    def forward(self, x):
        shape = x.shape
        if not shape or shape[-1] != self.in_features:
            expect(self, x, ..., self.in_features)
        bias = self.bias if len(shape) > 1 or self.bias is None else self.bias.reshape(-1)
        return ops.linear(x, self.weight, bias)


class Embedding(Module):
    """y = weight[ids]: ids of any shape, whole floats too, -> ids.shape + (embedding_dim,); weight ~ N(0, 1).

    >>> import needle as ndl
    >>> Embedding(10, 4)(ndl.Tensor([[1.0, 9.0, 1.0]])).shape
    (1, 3, 4)
    """

    def __init__(self, num_embeddings, embedding_dim, device=None, dtype="float32"):
        super().__init__()
        check_sizes(self, num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Parameter(init.randn(num_embeddings, embedding_dim, device=device, dtype=dtype))

    def forward(self, ids):
        return ops.embedding(ids, self.weight)


class Dropout(Module):
    """y = x m / (1 - p) in training, m ~ Bernoulli(1 - p); y = x in evaluation"""

    def __init__(self, p=0.5):
        super().__init__()
        if isinstance(p, str) or not 0 <= p < 1:
            raise ValueError(f"Dropout: p = {p!r}: expected a number from 0, below 1")
        self.p = p

    def forward(self, x):
        return ops.dropout(x, self.p, self.training)


class Flatten(Module):
    """(N, a, b, ...) -> (N, a b ...)"""

    def forward(self, x):
        size = 1
        for n in x.shape[1:]:
            size *= n
        return x.reshape((x.shape[0], size))
