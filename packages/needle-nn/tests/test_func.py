"""vmap by comparison with a loop over the examples; modules as functions; per-sample gradients and Hessians."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what weights are drawn from)

import doctest
import importlib

import numpy as np
import pytest

import needle as ndl
from needle import nn, ops
from needle.func import functional_call, grad, grad_and_value, hessian, jacfwd, stack_module_state, vmap
from needle.nn import functional as F

RNG = np.random.default_rng(0)


def t(*shape, grad=False):
    return ndl.Tensor(RNG.standard_normal(shape), dtype="float64", requires_grad=grad)


W, V, IMAGES, KERNEL = t(4, 3), t(4), t(5, 2, 6, 6, 3), t(3, 3, 3, 2)
IDS = ndl.Tensor(np.array([[0, 2], [1, 1], [3, 0]]))

#: name: (function of one example, its batched arguments, in_dims)
CASES = {
    "elementwise": (lambda x: ops.tanh(x) * 2 + ops.exp(-x) / 3 - x**2, (t(5, 4),), 0),
    "broadcasting": (lambda x, y: x + y, (t(5, 4), t(5, 3, 1)), 0),
    "with a constant of more axes": (lambda x: x * W, (t(5, 3),), 0),
    "a number": (lambda x: x * V, (t(5),), 0),
    "sums": (lambda x: x.sum() + x.mean(0).sum() + x.max(1).sum(), (t(5, 4, 3),), 0),
    "softmax": (lambda x: ops.softmax(x, 0) + ops.logsoftmax(x, -1) + ops.logsumexp(x, 1, keepdims=True), (t(5, 4, 3),), 0),
    "shapes": (lambda x: x.reshape(-1).reshape((2, 6)).transpose().permute((1, 0)), (t(5, 4, 3),), 0),
    "broadcast_to": (lambda x: ops.broadcast_to(x, (2, 4, 3)), (t(5, 3),), 0),
    "flip": (lambda x: ops.flip(x, (0,)), (t(5, 4, 3),), 0),
    "stack": (lambda x: ops.stack([x, V, x * 2], 1), (t(5, 4),), 0),
    "concatenate": (lambda x: ops.concatenate([x, W], -1), (t(5, 4, 2),), 0),
    "split": (lambda x: sum(part**2 for part in ops.split(x, 1).tuple()), (t(5, 4, 3),), 0),
    "indexing": (lambda x: x[1:, None, ..., 0], (t(5, 4, 3),), 0),
    "positions": (lambda x: x[[0, 2, 2]], (t(5, 4, 3),), 0),
    "positions of each": (lambda x, i: x[i], (t(3, 4, 3), IDS), 0),
    "take": (lambda x: ops.take(x, np.array([1, 0, 1]), 1), (t(5, 4, 3),), 0),
    "embedding": (lambda i: ops.embedding(i, W), (IDS,), 0),
    "take of each": (lambda x, i: ops.take(x, i, 0), (t(3, 4, 3), IDS), 0),
    "products": (lambda x: x @ W, (t(5, 2, 4),), 0),
    "products of both": (lambda x, y: x @ y, (t(5, 2, 4), t(5, 4, 3)), 0),
    "products, right": (lambda y: W.transpose() @ y, (t(5, 4, 2),), 0),
    "vectors": (lambda x: (x @ W).sum(), (t(5, 4),), 0),
    "linear": (lambda x: ops.linear(x, W, W[0]), (t(5, 2, 4),), 0),
    "linear of each": (lambda x, w, b: ops.linear(x, w, b), (t(5, 2, 4), t(5, 4, 3), t(5, 3)), 0),
    "linear of each, a row": (lambda x, w, b: ops.linear(x, w, b), (t(5, 4), t(5, 4, 3), t(5, 3)), 0),
    "linear, weights of each": (lambda w: ops.linear(V, w, W[0]), (t(5, 4, 3),), 0),
    "einsum": (lambda x: ops.einsum("ij,ik->jk", x, W), (t(5, 4, 2),), 0),
    "convolution": (lambda x: ops.conv2d(x, KERNEL, padding=1), (IMAGES,), 0),
    "convolution of each": (lambda w: ops.conv2d(IMAGES[0], w), (t(4, 3, 3, 3, 2),), 0),
    "pooling": (lambda x: ops.max_pool2d(x, 2) + ops.avg_pool2d(x, 2), (IMAGES,), 0),
    "cross entropy": (lambda x, y: ops.cross_entropy(x, y), (t(3, 2, 4), IDS), 0),
    "layer norm": (lambda x: ops.layer_norm(x, W[0], W[1]), (t(5, 2, 3),), 0),
    "attention": (lambda x: ops.scaled_dot_product_attention(x, x, x, causal=True), (t(5, 3, 4),), 0),
    "choices": (lambda x: ops.where(x > 0, x, 0.0) + ops.sign(x), (t(5, 4),), 0),
    "argmax": (lambda x: ops.argmax(x, 0), (t(5, 4, 3),), 0),
    "axes": (lambda x, y: x * y, (t(4, 5), t(5, 4)), (1, 0)),
    "one of two": (lambda x, y: x * y, (t(5, 4), V), (0, None)),
    "nothing of it": (lambda x: V * 2, (t(5, 4),), 0),
    "recurrent": (lambda x: ops.rnn(x, W, W[:3] * 0.1)[0], (t(5, 6, 2, 4),), 0),
    "gradients": (grad(lambda x: (ops.tanh(x @ W) ** 2).sum()), (t(5, 2, 4),), 0),
    "second order": (hessian(lambda x: (ops.sin(x) * x**2).sum()), (t(3, 4),), 0),
}  # fmt: skip


def example(x, dim, i):
    return x if dim is None else ndl.Tensor(np.moveaxis(x.numpy(), dim, 0)[i], dtype=x.dtype, requires_grad=False)


@pytest.mark.parametrize("name", CASES)
def test_as_a_loop(name):
    function, args, dims = CASES[name]
    dims = dims if isinstance(dims, tuple) else (dims,) * len(args)
    found = vmap(function, dims)(*args)
    n = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    parts = [function(*[example(x, d, i) for x, d in zip(args, dims, strict=True)]).numpy() for i in range(n)]
    np.testing.assert_allclose(found.numpy(), np.stack(parts), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("argmax", "nothing of it", "embedding")])
def test_gradients_through_it(name):
    function, args, dims = CASES[name]
    dims = dims if isinstance(dims, tuple) else (dims,) * len(args)
    n = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)

    def leaves():
        return [ndl.Tensor(x.numpy(), dtype=x.dtype, requires_grad=x.dtype.is_float) for x in args]

    whole, single = leaves(), leaves()
    (vmap(function, dims)(*whole) ** 2).sum().backward()
    total = 0.0
    for i in range(n):
        picked = [
            x if d is None else ops.permute(x, (d, *[a for a in range(x.ndim) if a != d]))[i]
            for x, d in zip(single, dims, strict=True)
        ]
        total = total + (function(*picked) ** 2).sum()
    total.backward()
    for a, b in zip(whole, single, strict=True):
        if a.requires_grad:
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-8, atol=1e-11)


def test_trees_and_axes_of_results():
    out = vmap(lambda p, x: {"y": p["w"] * x, "s": (x.sum(), x)}, in_dims=(None, 0))({"w": V}, t(5, 4))
    assert out["y"].shape == (5, 4) and out["s"][0].shape == (5,)
    assert vmap(lambda x: x, out_dims=1)(t(5, 4)).shape == (4, 5)
    nested = vmap(vmap(lambda x: x.sum()))(t(2, 3, 4))
    assert nested.shape == (2, 3)


def test_detach_is_a_detach_for_the_batch_too():
    x = t(3, 2, grad=True)
    vmap(lambda row: (row.detach() * row).sum())(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), x.numpy())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: vmap(lambda x: x if x.sum().item() > 0 else -x)(t(3, 2)),
            "the function looks at the values of an example at",
        ),
        (lambda: vmap(lambda x, y: x)(t(3), t(4)), "vmap: batches of [3, 4] examples: expected one size"),
        (lambda: vmap(lambda x: x, in_dims=2)(t(3, 2)), "vmap: axis 2 of shape (3, 2)"),
        (lambda: vmap(lambda x: x, in_dims=(0, 0))(t(3)), "vmap: in_dims (0, 0) for 1 arguments"),
        (lambda: vmap(lambda x: x)(t(0, 2)), "expected one example or more"),
        (lambda: vmap(lambda x: x, out_dims=3)(t(3, 2)), "vmap: axis 3 of shape (3, 2)"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert message in str(caught.value) and "\n" not in str(caught.value)


# ---- Modules ------------------------------------------------------------


def models():
    np.random.seed(0)
    yield "mlp", nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), t(6, 4)
    yield "lists", nn.LSTM(4, 3), t(6, 5, 1, 4)
    yield "convolution", nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(1), nn.Linear(48, 3)), t(6, 1, 2, 6, 6)
    yield "norm", nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)), t(6, 4)


@pytest.mark.parametrize(("model", "x"), [pytest.param(m, x, id=name) for name, m, x in models()])
def test_gradients_of_each_example(model, x):
    model = model.double()
    params = dict(model.named_parameters())

    def loss(params, x):
        y = functional_call(model, params, x)
        return ((y[0] if isinstance(y, tuple) else y) ** 2).sum()

    found = vmap(grad(loss), in_dims=(None, 0))(params, x)
    for i in range(x.shape[0]):
        model.zero_grad()
        y = model(x[i])
        ((y[0] if isinstance(y, tuple) else y) ** 2).sum().backward()
        for name, p in params.items():
            np.testing.assert_allclose(found[name].numpy()[i], p.grad.numpy(), rtol=1e-8, atol=1e-11, err_msg=name)
    assert dict(model.named_parameters()).keys() == params.keys()
    assert all(a is params[name] for name, a in model.named_parameters())


def test_call_with_other_parameters():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).eval()
    before = model(ndl.ones(4, 2)).numpy()
    zeros = {"0.weight": ndl.zeros(2, 3), "0.bias": ndl.zeros(1, 3), "1.running_mean": ndl.ones(3)}
    np.testing.assert_allclose(functional_call(model, zeros, ndl.ones(4, 2)).numpy(), -1, rtol=1e-4)
    np.testing.assert_array_equal(model(ndl.ones(4, 2)).numpy(), before)
    with pytest.raises(ValueError, match=r"no '0.wait'; it has 0.weight, 0.bias"):
        functional_call(model, {"0.wait": ndl.ones(1)}, ndl.ones(4, 2))
    with pytest.raises(ValueError, match=r"0.bias: shape \(3,\), expected a Tensor of shape \(1, 3\)"):
        functional_call(model, {"0.bias": ndl.ones(3)}, ndl.ones(4, 2))
    with pytest.raises(ValueError, match="input has shape"):
        functional_call(model, zeros, ndl.ones(4, 5))
    np.testing.assert_array_equal(model(ndl.ones(4, 2)).numpy(), before)


def test_shared_parameters_are_replaced_everywhere():
    layer = nn.Linear(2, 2, bias=False)
    twice = nn.Sequential(layer, layer)
    np.testing.assert_allclose(functional_call(twice, {"0.weight": ndl.ones(2, 2) * 2}, ndl.ones(1, 2)).numpy(), 16)


def test_hessian_of_a_module():
    model = nn.Linear(2, 1, bias=False, dtype="float64")
    x = t(5, 2)

    def loss(w):
        return (functional_call(model, {"weight": w}, x) ** 2).sum()

    found = hessian(loss)(model.weight)
    np.testing.assert_allclose(found.numpy().reshape(2, 2), 2 * x.numpy().T @ x.numpy(), rtol=1e-9)
    slope, value = grad_and_value(loss)(model.weight)
    assert value.item() == pytest.approx(loss(model.weight).item()) and slope.shape == (2, 1)
    np.testing.assert_allclose(jacfwd(loss)(model.weight).numpy(), slope.numpy(), rtol=1e-9)


def test_ensemble():
    nets = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(3)]
    params, buffers = stack_module_state(nets)
    assert buffers == {} and params["0.weight"].shape == (3, 3, 4) and params["0.weight"].requires_grad
    x = ndl.init.randn(5, 3)
    found = vmap(lambda p, x: functional_call(nets[0], p, x), in_dims=(0, None))(params, x)
    np.testing.assert_allclose(found.numpy(), np.stack([net(x).numpy() for net in nets]), rtol=1e-5, atol=1e-6)
    found.sum().backward()
    assert params["2.weight"].grad.shape == (3, 4, 2)


def test_functional_loss_of_each():
    x, y = t(4, 3), ndl.Tensor(np.array([0, 2, 1, 1]))
    found = vmap(lambda x, y: F.cross_entropy(x.reshape((1, 3)), y.reshape((1,))))(x, y)
    np.testing.assert_allclose(found.numpy(), F.cross_entropy(x, y, reduction="none").numpy(), rtol=1e-9)


@pytest.mark.parametrize("name", ["needle_nn.func", "needle.batching.vmap", "needle.batching.rules"])
def test_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried > 0 and failed == 0
