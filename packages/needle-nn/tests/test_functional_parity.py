"""needle.nn.functional, called as PyTorch's functions are: the same values and gradients from the same arguments."""

import numpy as np
import pytest

import needle as ndl
from needle.nn import functional as F

pytestmark = pytest.mark.parity

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape)


def shares(*shape):
    return RNG.uniform(0.05, 0.95, shape)


LABELS, SIGNS = np.array([1, 0, 3]), np.array([1, -1, 1])
BAGS = np.array([[1, 4], [0, 2], [5, 3]])
MASK = np.array([[True, False, True], [True, True, False]])

#: name, or name/what differs: (arguments, named arguments)
CALLS = {
    **{name: ((normal(3, 4),), {}) for name in """celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid
        mish relu relu6 selu sigmoid silu softplus softshrink softsign tanh tanhshrink""".split()},
    "gelu/tanh": ((normal(3, 4),), {"approximate": "tanh"}),
    "softplus/beta": ((normal(3, 4), 0.5), {}),
    "elu/alpha": ((normal(3, 4), 0.3), {"inplace": False}),
    "threshold": ((normal(3, 4), 0.2, 1.0), {}),
    "prelu": ((normal(3, 4), normal(4)), {}),
    "softmax": ((normal(3, 4),), {"dim": 0}),
    "softmin": ((normal(3, 4),), {"dim": 1}),
    "log_softmax": ((normal(3, 4), 1), {}),
    "glu": ((normal(3, 4),), {"dim": 1}),
    "linear": ((normal(2, 5, 3), normal(4, 3), normal(4)), {}),
    "linear/square": ((normal(2, 3), normal(3, 3)), {}),
    "bilinear": ((normal(2, 3), normal(2, 4), normal(5, 3, 4), normal(5)), {}),
    "embedding": ((LABELS, normal(4, 2)), {}),
    "embedding/padding": ((LABELS, normal(4, 2)), {"padding_idx": 3}),
    "embedding_bag": ((BAGS, normal(6, 2)), {}),
    "embedding_bag/sum": ((BAGS, normal(6, 2)), {"mode": "sum", "per_sample_weights": normal(3, 2)}),
    "embedding_bag/padding": ((BAGS, normal(6, 2)), {"padding_idx": 4}),
    "embedding_bag/offsets": ((BAGS.reshape(-1), normal(6, 2), np.array([0, 1, 1, 4])), {}),
    "one_hot": ((LABELS,), {}),
    "layer_norm": ((normal(2, 3, 4), (3, 4), normal(3, 4), normal(3, 4)), {}),
    "rms_norm": ((normal(2, 4), (4,), normal(4)), {"eps": 1e-5}),
    "group_norm": ((normal(2, 4, 3), 2, normal(4), normal(4)), {}),
    "instance_norm": ((normal(2, 4, 3, 3),), {}),
    "batch_norm": ((normal(5, 4),), {"running_mean": normal(4), "running_var": shares(4), "weight": normal(4)}),
    "batch_norm/training": ((normal(5, 4), None, None, normal(4), normal(4)), {"training": True}),
    "normalize": ((normal(3, 4),), {"dim": 0}),
    "normalize/p": ((normal(3, 4),), {"p": 3}),
    "normalize/largest": ((normal(3, 4),), {"p": float("inf")}),
    "cosine_similarity": ((normal(3, 4), normal(3, 4)), {"dim": 1}),
    "pairwise_distance": ((normal(3, 4), normal(3, 4)), {"p": 1, "keepdim": True}),
    "scaled_dot_product_attention": ((normal(2, 2, 4), normal(2, 3, 4), normal(2, 3, 5)), {}),
    "scaled_dot_product_attention/mask": ((normal(2, 2, 4), normal(2, 3, 4), normal(2, 3, 5), MASK), {}),
    "scaled_dot_product_attention/causal": ((normal(2, 2, 4), normal(2, 3, 4), normal(2, 3, 5)), {"is_causal": True}),
    "scaled_dot_product_attention/square": ((normal(3, 4), normal(3, 4), normal(3, 4)), {"is_causal": True, "scale": 0.3}),
    "conv1d": ((normal(2, 4, 7), normal(3, 4, 3), normal(3)), {"padding": 1, "stride": 2}),
    "conv1d/same": ((normal(2, 4, 7), normal(3, 4, 2)), {"padding": "same", "dilation": 2}),
    "conv2d": ((normal(2, 4, 6, 5), normal(6, 2, 3, 2), normal(6), 2, 1), {"groups": 2}),
    "conv2d/square": ((normal(1, 3, 3, 3), normal(3, 3, 3, 3)), {}),
    "conv_transpose1d": ((normal(2, 4, 5), normal(4, 3, 3), normal(3)), {"stride": 2, "output_padding": 1}),
    "conv_transpose2d": ((normal(2, 4, 5, 4), normal(4, 3, 3, 2), normal(3)), {"stride": 2, "padding": 1}),
    "conv3d": ((normal(2, 4, 5, 4, 6), normal(6, 2, 3, 2, 1), normal(6), 2, (1, 0, 2)), {"groups": 2}),
    "conv3d/same": ((normal(1, 2, 5, 4, 6), normal(3, 2, 2, 3, 3)), {"padding": "same", "dilation": 2}),
    "conv_transpose3d": ((normal(2, 4, 3, 4, 2), normal(4, 3, 3, 2, 3), normal(6), 2, 1, (1, 0, 1), 2), {}),
    "conv_transpose3d/cut": ((normal(1, 2, 5, 4, 6), normal(2, 3, 2, 2, 2)), {"padding": 2, "dilation": 2}),
    "max_pool3d": ((normal(2, 3, 5, 4, 6), (3, 2, 2)), {"padding": 1, "stride": 2, "ceil_mode": True}),
    "avg_pool3d": ((normal(2, 3, 5, 4, 6), 3), {"padding": 1, "stride": 2, "ceil_mode": True}),
    "avg_pool3d/inside": ((normal(2, 3, 5, 4, 6), (2, 3, 2), None, 1), {"count_include_pad": False}),
    "avg_pool3d/divisor": ((normal(2, 3, 4, 4, 6), 2), {"divisor_override": 3}),
    "adaptive_avg_pool3d": ((normal(2, 3, 5, 4, 6), (None, 3, 4)), {}),
    "max_pool1d": ((normal(2, 4, 7), 3), {"ceil_mode": True}),
    "max_pool2d": ((normal(2, 4, 6, 5), (3, 2)), {"padding": 1, "stride": (2, 1), "ceil_mode": True}),
    "max_pool2d/places": ((normal(2, 4, 7, 5), (3, 2)), {"padding": 1, "stride": 2, "dilation": 2, "return_indices": True}),
    "max_pool2d/infinite": ((np.full((1, 1, 5, 4), -np.inf), 2), {"padding": 1, "dilation": 2, "return_indices": True}),
    "max_pool2d/beyond": ((normal(2, 4, 6, 5), 3, 2), {"ceil_mode": True, "return_indices": True}),
    "max_pool2d/dilation": ((normal(2, 4, 7, 6), 2, 1, 1), {"dilation": (3, 2)}),
    "max_pool1d/places": ((normal(2, 4, 7), 3), {"dilation": 2, "return_indices": True}),
    "max_unpool1d": ((normal(2, 1, 2), np.array([[[0, 3]], [[2, 1]]]), 2), {}),
    "max_unpool2d": ((normal(1, 1, 2, 2), np.array([[[[0, 2], [19, 12]]]]), 2), {"output_size": (5, 4)}),
    "avg_pool1d": ((normal(2, 4, 7), 2), {"ceil_mode": True}),
    "avg_pool2d": ((normal(2, 4, 6, 5), 3), {"padding": 1, "stride": 2, "ceil_mode": True}),
    "avg_pool2d/inside": ((normal(2, 4, 6, 5), 3, 2, 1, True, False), {}),
    "avg_pool2d/divisor": ((normal(2, 4, 6, 5), 2), {"divisor_override": 3}),
    "adaptive_avg_pool1d": ((normal(2, 4, 7), 3), {}),
    "adaptive_avg_pool2d": ((normal(2, 4, 6, 5), (None, 2)), {}),
    "adaptive_max_pool1d": ((normal(2, 4, 7), 3), {}),
    "adaptive_max_pool2d": ((normal(2, 4, 6, 5), (3, 5)), {}),
    "pad": ((normal(2, 3, 4), (1, 2, -1, 3)), {"value": 2.0}),
    "pad/reflect": ((normal(2, 3, 4, 5), (2, 1, 3, 0)), {"mode": "reflect"}),
    "pad/replicate": ((normal(2, 3, 4), (2, 6)), {"mode": "replicate"}),
    "pad/circular": ((normal(2, 3, 4), (2, 4)), {"mode": "circular"}),
    "interpolate": ((normal(2, 3, 4, 5), (7, 3)), {}),
    "interpolate/scale": ((normal(2, 3, 4, 5),), {"scale_factor": 1.7}),
    "interpolate/exact": ((normal(2, 3, 7), 4), {"mode": "nearest-exact"}),
    "interpolate/linear": ((normal(2, 3, 4),), {"scale_factor": 2.5, "mode": "linear"}),
    "interpolate/bilinear": ((normal(2, 3, 4, 5), (6, 3)), {"mode": "bilinear"}),
    "interpolate/corners": ((normal(2, 3, 4, 5), (6, 3)), {"mode": "bilinear", "align_corners": True}),
    "interpolate/recomputed": ((normal(2, 3, 4, 5),), {"scale_factor": 1.3, "mode": "bilinear", "recompute_scale_factor": True}),
    "interpolate/bicubic": ((normal(2, 3, 4, 5), (6, 3)), {"mode": "bicubic"}),
    "interpolate/area": ((normal(2, 3, 4, 5), (3, 2)), {"mode": "area"}),
    "pixel_shuffle": ((normal(2, 8, 3, 2), 2), {}),
    "pixel_unshuffle": ((normal(2, 2, 4, 6), 2), {}),
    "unfold": ((normal(2, 3, 6, 5), (3, 2)), {"dilation": 2, "padding": 1, "stride": 2}),
    "cross_entropy": ((normal(3, 4), LABELS), {"label_smoothing": 0.2, "weight": shares(4)}),
    "cross_entropy/ignore": ((normal(3, 4), LABELS), {"ignore_index": 0, "reduction": "sum"}),
    "cross_entropy/probabilities": ((normal(3, 4, 2), shares(3, 4, 2)), {"weight": shares(4), "label_smoothing": 0.1}),
    "nll_loss": ((normal(3, 4), LABELS), {"reduction": "none"}),
    "mse_loss": ((normal(3, 4), normal(3, 4)), {"reduction": "sum"}),
    "l1_loss": ((normal(3, 4), normal(3, 4)), {}),
    "smooth_l1_loss": ((normal(3, 4), normal(3, 4)), {"beta": 0.3}),
    "huber_loss": ((normal(3, 4), normal(3, 4)), {"delta": 0.3}),
    "binary_cross_entropy": ((shares(3, 4), shares(3, 4)), {"weight": shares(4)}),
    "binary_cross_entropy_with_logits": ((normal(3, 4), shares(3, 4)), {"pos_weight": shares(4)}),
    "kl_div": ((normal(3, 4), normal(3, 4)), {"log_target": True, "reduction": "none"}),
    "soft_margin_loss": ((normal(3), SIGNS), {}),
    "poisson_nll_loss": ((shares(3, 4), shares(3, 4) * 3), {"log_input": False, "full": True}),
    "gaussian_nll_loss": ((normal(3, 4), normal(3, 4), shares(3, 4)), {"full": True}),
    "cosine_embedding_loss": ((normal(3, 4), normal(3, 4), SIGNS), {"margin": 0.2}),
    "margin_ranking_loss": ((normal(3), normal(3), SIGNS), {}),
    "hinge_embedding_loss": ((normal(3), SIGNS), {"margin": 0.5}),
    "triplet_margin_loss": ((normal(3, 4), normal(3, 4), normal(3, 4)), {"swap": True, "p": 1}),
}  # fmt: skip

#: What draws, and a second name.
WITHOUT = {"alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "gumbel_softmax", "upsample"}


def test_every_function_is_here():
    assert {name.partition("/")[0] for name in CALLS} | WITHOUT == set(F.__all__)


@pytest.mark.parametrize("name", CALLS)
def test_like_pytorch(name):
    torch = pytest.importorskip("torch")
    function = name.partition("/")[0]
    args, named = CALLS[name]

    def ours(x):
        return ndl.Tensor(x, dtype=str(x.dtype)) if isinstance(x, np.ndarray) else x

    def theirs(x):
        return torch.tensor(x) if isinstance(x, np.ndarray) else x

    def call(module, made):
        inputs, options = [made(x) for x in args], {key: made(x) for key, x in named.items()}
        for x in inputs:  # what has a name is constant: PyTorch has no gradients of weights of classes
            if hasattr(x, "grad") and str(x.dtype).endswith("float64"):
                x.requires_grad_(True)
        return getattr(module, function)(*inputs, **options), [x for x in inputs if hasattr(x, "grad")]

    (y, xs), (expected, wanted) = call(F, ours), call(torch.nn.functional, theirs)
    if isinstance(y, tuple):
        np.testing.assert_array_equal(y[1].numpy(), expected[1].numpy())
        y, expected = y[0], expected[0]
    assert y.shape == tuple(expected.shape)
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-6, atol=1e-8)
    if not expected.requires_grad:
        return
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    for x, other in zip(xs, wanted, strict=True):
        if other.grad is not None:
            np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=1e-6, atol=1e-8)


KINKS = """celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6 selu silu softplus
    softshrink softsign tanhshrink""".split()

#: Where PyTorch takes the other one-sided derivative, or ours is between the two.
OTHERS = {"hardswish": [-3.0, 3.0], "hardsigmoid": [-3.0, 3.0], "relu6": [6.0], "hardtanh": [-1.0, 1.0]}


@pytest.mark.parametrize("name", KINKS)
def test_derivatives_at_kinks(name):
    torch = pytest.importorskip("torch")
    points = np.array([x for x in (-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0) if x not in OTHERS.get(name, [])])
    x, other = ndl.Tensor(points, dtype="float64"), torch.tensor(points, requires_grad=True)
    getattr(F, name)(x).sum().backward()
    getattr(torch.nn.functional, name)(other).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "name", ["binary_cross_entropy_with_logits", "smooth_l1_loss", "huber_loss", "l1_loss", "soft_margin_loss"]
)
def test_derivatives_of_losses_at_zero(name):
    torch = pytest.importorskip("torch")
    target = np.array([1.0, 0.0, 0.0, 1.0])
    for options in ({}, {"pos_weight": np.full(4, 3.0)} if "logits" in name else {}):
        x, other = ndl.Tensor(np.zeros(4), dtype="float64"), torch.zeros(4, dtype=torch.float64, requires_grad=True)
        made = {key: ndl.Tensor(value, dtype="float64", requires_grad=False) for key, value in options.items()}
        getattr(F, name)(x, ndl.Tensor(target, dtype="float64"), **made).backward()
        made = {key: torch.tensor(value) for key, value in options.items()}
        getattr(torch.nn.functional, name)(other, torch.tensor(target), **made).backward()
        np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=1e-9)


@pytest.mark.parametrize("kind", ["key padding", "causal", "floats", "heads", "both", "causal and padding"])
def test_masks_of_multihead_attention(kind):
    torch = pytest.importorskip("torch")
    from needle import nn

    layer = nn.MultiheadAttention(6, 2, batch_first=True, dtype="float64")
    twin = torch.nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for key, value in layer.state_dict().items():
            other = twin.get_parameter(key)
            other.copy_(torch.tensor(value.numpy().T.copy()).reshape(other.shape))
    x = normal(2, 3, 6)
    upper = np.triu(np.ones((3, 3), bool), 1)
    padding = np.array([[False, False, True], [False, False, False]])
    masks = {
        "key padding": {"key_padding_mask": padding},
        "causal": {"attn_mask": upper, "is_causal": True},
        "floats": {"attn_mask": np.where(upper, -np.inf, 0.5)},
        "heads": {"attn_mask": np.stack([upper, upper.T, upper, np.zeros_like(upper)])},
        "both": {"attn_mask": upper, "key_padding_mask": padding},
        "causal and padding": {"attn_mask": upper, "is_causal": True, "key_padding_mask": padding},
    }[kind]

    def made(make):
        return {key: value if isinstance(value, bool) else make(value) for key, value in masks.items()}

    for weights in (True, False):
        a = ndl.Tensor(x, dtype="float64")
        ours = made(lambda m: ndl.Tensor(m, dtype=str(m.dtype), requires_grad=False))
        y, p = layer(a, a, a, need_weights=weights, **ours)
        b = torch.tensor(x)
        wanted, q = twin(b, b, b, need_weights=weights, **made(torch.tensor))
        np.testing.assert_allclose(y.numpy(), wanted.detach().numpy(), rtol=1e-6, atol=1e-8)
        assert (p is None) == (q is None)
        if weights:
            np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-6, atol=1e-8)
