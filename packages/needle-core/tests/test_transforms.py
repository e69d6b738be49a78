"""needle.transforms: against formulas, finite differences and each other."""

import doctest
import gc
from collections import namedtuple

import numpy as np
import pytest

import needle as ndl
import needle_ndarray as nd
from needle import transforms
from needle.autograd import Tensor, gradients
from needle.custom import operator
from needle.transforms import checkpoint, grad, hessian, hvp, jacobian, jvp, value_and_grad, vjp

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 5))
V = RNG.uniform(0.5, 1.5, 6)


def t64(x, requires_grad=False):
    return Tensor(np.asarray(x, "float64"), dtype="float64", requires_grad=requires_grad)


def close(got, want, tol=1e-9):
    got = got.numpy() if isinstance(got, Tensor) else got
    np.testing.assert_allclose(got, want, rtol=tol, atol=tol)


# Functions of a vector of 6 positive numbers, with ops of every family; outputs of several shapes
VECTOR = {
    "elementwise": lambda x: ndl.exp(-x) * ndl.sin(x) / (1 + x * x) + ndl.sqrt(x) ** 3,
    "activations": lambda x: ndl.tanh(x) + ndl.sigmoid(x) * ndl.gelu(x) - ndl.silu(x) + ndl.relu(x - 1.01),
    "matmul": lambda x: t64(A) @ x.reshape(3, 2),
    "quadratic": lambda x: x.reshape(2, 3) @ x.reshape(3, 2),
    "reductions": lambda x: ndl.logsumexp(x.reshape(2, 3), (1,)) * x.sum() + ndl.max(x.reshape(2, 3), 1),
    "softmax": lambda x: ndl.softmax(x) * ndl.log(x),
    "indexing": lambda x: x[::2] * x[np.array([0, 0, 5])],
    "joining": lambda x: ndl.concatenate([x, ndl.stack([x[0], x[1] ** 2])]),
    "split": lambda x: ndl.split(x.reshape(3, 2), 0)[1] * ndl.split(x.reshape(3, 2), 0)[2],
    "power": lambda x: x ** x.flip(),
    "where": lambda x: ndl.where(x > 1.0, x * x, 3 * x),
    "no path": lambda x: ndl.floor(x) * 2,
    "itself": lambda x: x,
}
# and of the same vector, to one number
SCALAR = {
    "polynomial": lambda x: (x**3).sum() * x[0],
    "log barrier": lambda x: -ndl.log(x).sum() + (x * x.flip()).sum(),
    "network": lambda x: ndl.logsumexp(ndl.tanh(x.reshape(2, 3) @ t64(B)) * 2),
    "quotient": lambda x: x[1] / (x[0] + ndl.exp(x[2])) + ndl.sin(x).sum(),
    "linear": lambda x: x.sum(),
}


def numeric(f, x, eps=1e-6):
    """Central differences: shape of f(x) + shape of x."""
    columns = []
    for i in range(x.size):
        step = np.zeros(x.size)
        step[i] = eps
        step = step.reshape(x.shape)
        columns.append((f(t64(x + step)).numpy() - f(t64(x - step)).numpy()) / (2 * eps))
    return np.stack(columns, -1).reshape(columns[0].shape + x.shape)


@pytest.fixture(params=[False, True], ids=["constant", "variable"])
def requires_grad(request):
    """Whether arguments require a gradient: the two ways a variable is made."""
    return request.param


@pytest.mark.parametrize("name", SCALAR)
def test_grad_against_differences(name, requires_grad):
    x = t64(V, requires_grad)
    y, g = value_and_grad(SCALAR[name])(x)
    close(y, SCALAR[name](x).numpy(), 0)
    close(g, numeric(SCALAR[name], V), 1e-7)
    close(grad(SCALAR[name])(x), g.numpy(), 0)
    assert x.grad is None


@pytest.mark.parametrize("name", VECTOR)
def test_jacobian_against_differences(name, requires_grad):
    close(jacobian(VECTOR[name])(t64(V, requires_grad)), numeric(VECTOR[name], V), 1e-7)


@pytest.mark.parametrize("name", VECTOR)
def test_forward_and_reverse_agree(name, requires_grad):
    """<u, J v> = <J^T u, v>, and both are the Jacobian's products."""
    f, x = VECTOR[name], t64(V, requires_grad)
    jac = jacobian(f)(x).numpy()
    v = RNG.standard_normal(6)
    y, tangent = jvp(f, (x,), (t64(v),))
    u = RNG.standard_normal(y.shape)
    z, pull = vjp(f, x)
    (cotangent,) = pull(t64(u))
    close(y, f(x).numpy(), 0)
    close(z, f(x).numpy(), 0)
    close(tangent, jac @ v)
    close(cotangent, np.tensordot(u, jac, u.ndim))
    close((u * tangent.numpy()).sum(), cotangent.numpy() @ v)


@pytest.mark.parametrize("name", SCALAR)
def test_hessian(name, requires_grad):
    f, x, v = SCALAR[name], t64(V, requires_grad), RNG.standard_normal(6)
    h = hessian(f)(x).numpy()
    close(h, numeric(grad(f), V), 1e-6)
    close(h, h.T)
    close(hvp(f, x, t64(v)), h @ v)
    (product,) = hvp(f, (x,), (v,))
    close(product, h @ v)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_both_ways_of_a_jacobian(shape):
    """More inputs than outputs: rows. Fewer: columns. Shapes are y.shape + x.shape in both."""
    x = RNG.standard_normal(shape)
    few, many = (lambda x: (x * x).sum()), (lambda x: ndl.stack([x, x * x, ndl.sin(x)]).reshape((3, *shape)))
    close(jacobian(few)(t64(x)), 2 * x)
    assert jacobian(few)(t64(x)).shape == shape
    got = jacobian(many)(t64(x))
    assert got.shape == (3, *shape, *shape)
    close(got, numeric(many, x), 1e-7)


@pytest.mark.parametrize(("shape", "outputs", "most"), [((1,), 50, 2), ((50,), 1, 1), ((50,), 3, 3)])
def test_a_jacobian_takes_the_shorter_way(shape, outputs, most):
    """The number of gradients taken is that of inputs or outputs, whichever is less, not of both."""
    taken = []

    @operator
    def watched(x):
        return x + 0

    @watched.defgradient
    def _(out_grad, node):
        taken.append(1)
        return watched(out_grad)

    jac = jacobian(lambda x: watched(x).sum() * t64(np.arange(outputs)))(t64(np.ones(shape)))
    close(jac, np.outer(np.arange(outputs), np.ones(shape)))
    assert 1 <= len(taken) <= most


# ---- Nesting --------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_orders(order, requires_grad):
    f, derivative = ndl.sin, [np.sin, np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x), np.sin][order]
    for _ in range(order):
        f = grad(f)
    close(f(t64(0.7, requires_grad)), derivative(0.7))


def perturbation_confusion(x):
    """d/dx [x d/dy (x + y)] = d/dx x = 1: inner and outer variables are kept apart."""
    return x * grad(lambda y: x + y)(t64(1.0))


NESTED = {
    "confusion": (grad(perturbation_confusion), lambda x: 1.0),
    "inner closes over outer": (grad(lambda x: grad(lambda y: x * x * y * y)(x)), lambda x: 6 * x**2),
    "inner at a constant": (grad(lambda x: grad(lambda y: x * y**3)(t64(2.0))), lambda x: 12.0),
    "hessian of inner grad": (hessian(lambda x: grad(lambda y: y**2 * x**3)(x)), lambda x: 2 * 12 * x**2),
    "jvp in grad": (grad(lambda x: jvp(ndl.sin, x, x * x)[1]), lambda x: 2 * x * np.cos(x) - x**2 * np.sin(x)),
    "grad in jvp": (lambda x: jvp(grad(lambda x: x**3), x, t64(2.0))[1], lambda x: 12 * x),
    "jvp in jvp": (lambda x: jvp(lambda x: jvp(ndl.exp, x, x)[1], x, t64(1.0))[1], lambda x: (1 + x) * np.exp(x)),
    "vjp in grad": (grad(lambda x: vjp(lambda y: x * y**2, x)[1](x)[0]), lambda x: 6 * x**2),
    "hvp in grad": (grad(lambda x: hvp(lambda y: y**4, x, x)), lambda x: 36 * x**2),
    "jacobian in grad": (grad(lambda x: jacobian(lambda y: ndl.stack([y**2, y**3]))(x).sum()), lambda x: 2 + 6 * x),
    "third order": (grad(grad(grad(lambda x: x**5 + ndl.exp(2 * x)))), lambda x: 60 * x**2 + 8 * np.exp(2 * x)),
}


@pytest.mark.parametrize("name", NESTED)
def test_nesting(name, requires_grad):
    f, want = NESTED[name]
    close(f(t64(0.7, requires_grad)), want(0.7))


def test_partial_even_if_closed_over(requires_grad):
    x = t64(3.0, requires_grad)
    close(grad(lambda y: x * y)(x), 3.0)
    close(grad(lambda y, z: y * z * z)(x, x), 9.0)
    close(grad(lambda y, z: y * z * z, 1)(x, x), 18.0)
    assert x.grad is None


def test_results_join_a_graph_outside():
    x, w = t64(2.0, requires_grad=True), t64(3.0, requires_grad=True)
    grad(lambda x: x**3)(x).backward()
    close(x.grad, 12.0)
    grad(lambda y: y**2 * w)(t64(5.0)).backward()
    close(w.grad, 10.0)
    y, pull = vjp(lambda y: y * y, t64(5.0))
    assert not y.requires_grad
    pull(w)[0].backward()
    close(w.grad, 10.0)


RESULTS = {
    "grad": lambda x: [grad(lambda x: (x**3).sum())(x)],
    "value_and_grad": lambda x: value_and_grad(lambda x: (x**3).sum())(x),
    "jacobian": lambda x: [jacobian(lambda x: x**3)(x)],
    "columns": lambda x: [jacobian(lambda x: ndl.concatenate([x, x * x]))(x)],
    "hessian": lambda x: [hessian(lambda x: (x**3).sum())(x)],
    "jvp": lambda x: jvp(lambda x: x**3, x, x.detach()),
    "vjp": lambda x: (lambda y, pull: [y, *pull(x.detach())])(*vjp(lambda x: x**3, x)),
    "hvp": lambda x: [hvp(lambda x: (x**3).sum(), x, x.detach())],
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_carry_a_graph_only_where_somebody_may_ask(name):
    """Otherwise a training loop would hold on to all its steps."""
    constant, variable = t64(V), t64(V, requires_grad=True)
    plain = RESULTS[name](constant)
    assert [r.requires_grad or r.op is not None for r in plain] == [False] * len(plain)
    assert all(r.requires_grad for r in RESULTS[name](variable))
    with ndl.no_grad():
        for got, want in zip(RESULTS[name](variable), plain, strict=True):
            assert not got.requires_grad
            close(got, want.numpy(), 0)
        assert not ndl.is_grad_enabled()


def test_what_was_called_without_gradients_stays_outside():
    with ndl.no_grad():
        _, pull = vjp(lambda x: x**3, t64(V, requires_grad=True))
    (g,) = pull(t64(V))
    assert not g.requires_grad


@pytest.mark.parametrize(("mode", "requires_grad"), [(ndl.enable_grad, False), (ndl.no_grad, True)])
def test_a_loop_does_not_grow(mode, requires_grad):
    w = Tensor(np.ones(10, "float32"), requires_grad=requires_grad)
    counts = []
    gc.collect()  # what other tests have left must not go meanwhile
    with mode():
        for _ in range(5):
            w = w - 0.1 * grad(lambda w: (w * w).sum())(w)
            counts.append(ndl.autograd.TENSOR_COUNTER)
    assert counts[-1] == counts[1]


def test_lazy_mode(requires_grad):
    with ndl.lazy_mode():
        close(grad(lambda x: ndl.exp(x) * x)(t64(2.0, requires_grad)), 3 * np.exp(2.0))
        close(jvp(ndl.sin, t64(2.0, requires_grad), t64(3.0))[1], 3 * np.cos(2.0))


# ---- Arguments --------------------------------------------------------------------------

Point = namedtuple("Point", "x y")


def test_trees():
    params = {"w": [t64(2.0), t64(3.0)], "p": Point(t64(5.0), (t64(7.0),)), "none": None}
    f = lambda p: p["w"][0] * p["w"][1] ** 2 + p["p"].x * p["p"].y[0]  # noqa: E731
    g = grad(f)(params)
    assert list(g) == ["w", "p", "none"]
    assert isinstance(g["p"], Point)
    assert g["none"] is None
    assert [x.item() for x in (*g["w"], g["p"].x, *g["p"].y)] == [9.0, 12.0, 7.0, 5.0]


def test_tree_of_results():
    y, pull = vjp(lambda a, b: {"sum": a + b, "product": [a * b]}, t64(2.0), t64(3.0))
    assert (y["sum"].item(), y["product"][0].item()) == (5.0, 6.0)
    assert [g.item() for g in pull({"product": [t64(10.0)], "sum": t64(1.0)})] == [31.0, 21.0]
    y, tangent = jvp(lambda p: {"q": p["a"] * p["b"]}, {"a": 2.0, "b": 3.0}, {"b": 10.0, "a": 1.0})
    assert (y["q"].item(), tangent["q"].item()) == (6.0, 23.0)
    jac = jacobian(lambda p: (p["a"] * 2, p["a"] * p["b"]))({"a": t64(V), "b": t64(2.0)})
    close(jac[0]["a"], 2 * np.eye(6))
    close(jac[0]["b"], np.zeros(6))
    close(jac[1]["b"], V)


def test_tensor_tuple():
    t = ndl.make_tuple(t64([1.0, 2.0]), t64([3.0, 4.0]))
    g = grad(lambda t: (t[0] * t[1]).sum())(t)
    assert isinstance(g, ndl.TensorTuple)
    assert g[0].tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    ("argnums", "want"), [(0, 12.0), (1, 4.0), (-1, 4.0), ((0, 1), (12.0, 4.0)), ((1,), (4.0,)), ([1, 0], (4.0, 12.0))]
)
def test_argnums(argnums, want):
    f = lambda a, b: a * a * b  # noqa: E731
    value, g = value_and_grad(f, argnums)(t64(2.0), t64(3.0))
    assert value.item() == 12.0
    got = tuple([x.item() for x in g]) if isinstance(g, tuple) else g.item()
    assert got == want


def test_hessian_of_two_arguments():
    h = hessian(lambda a, b: (a * a * b).sum(), (0, 1))(t64([2.0, 3.0]), t64([5.0, 7.0]))
    close(h[0][0], np.diag([10.0, 14.0]))
    close(h[0][1], np.diag([4.0, 6.0]))
    close(h[1][0], np.diag([4.0, 6.0]))
    close(h[1][1], np.zeros((2, 2)))


@pytest.mark.parametrize("x", [2.0, 2, np.float32(2), np.array(2.0), nd.array(2.0)], ids=lambda x: type(x).__name__)
def test_numbers_and_arrays(x):
    g = grad(lambda x: x**3)(x)
    assert isinstance(g, Tensor)
    assert g.item() == 12.0


def test_other_arguments_are_passed_as_they_are():
    seen = []

    def f(x, power, *, table):
        seen.append((power, table))
        return x**power

    table = {"a": "b"}
    assert grad(f)(3.0, 2, table=table).item() == 6.0
    assert seen == [(2, table)]
    assert seen[0][1] is table


def test_aux():
    f = lambda x: (x * x, {"double": x * 2, "text": "t"})  # noqa: E731
    g, aux = grad(f, has_aux=True)(t64(3.0))
    assert (g.item(), aux["double"].item(), aux["text"], aux["double"].requires_grad) == (6.0, 6.0, "t", False)
    (y, aux), g = value_and_grad(f, has_aux=True)(t64(3.0))
    assert (y.item(), g.item(), aux["double"].item()) == (9.0, 6.0, 6.0)


def two(x):
    return ndl.stack([x, x])


X = t64([1.0, 2.0])
MISTAKES = {
    "vector": (
        lambda: grad(two)(X), ValueError,
        "grad: expected a scalar, the function returned shape (2, 2); sum it, or use jacobian",
    ),
    "size one": (
        lambda: hessian(lambda x: x.sum().reshape(1))(X), ValueError,
        "hessian: expected a scalar, the function returned shape (1,); sum it, or use jacobian",
    ),
    "hvp": (
        lambda: hvp(two, X, X), ValueError,
        "hvp: expected a scalar, the function returned shape (2, 2); sum it, or use jacobian",
    ),
    "argnums": (lambda: grad(two, 1)(X), ValueError, "grad: argnums 1 of a call with 1 positional argument"),
    "argnums below": (lambda: jacobian(two, -3)(X, X), ValueError, "jacobian: argnums -3 of a call with 2 positional arguments"),
    "argnums twice": (lambda: grad(two, (0, -1))(X), ValueError, "grad: argnums (0, -1) of a call with 1 positional argument"),
    "argnums kind": (lambda: grad(two, "x")(X), TypeError, "grad: argnums 'x': expected an int or a tuple of ints"),
    "integers": (
        lambda: grad(lambda x: x.sum())(Tensor(np.array([1, 2]))), TypeError,
        "grad: an argument of <lambda> is int64, and only floats have derivatives",
    ),
    "integer result": (
        lambda: jacobian(lambda x: x.argmax())(X), TypeError,
        "jacobian: the result of <lambda> is int64, and only floats have derivatives",
    ),
    "text": (lambda: grad(two)("x"), TypeError, "grad: an argument of two is a str, expected a Tensor, an array or a number"),
    "result": (
        lambda: vjp(lambda x: "y", X), TypeError,
        "vjp: the result of <lambda> is a str, expected a Tensor, an array or a number",
    ),
    "aux": (lambda: grad(two, has_aux=True)(X), TypeError, "grad: has_aux: two returned Tensor, expected a pair"),
    "tangent shape": (lambda: jvp(two, (X,), (t64([1.0]),)), ValueError, "jvp: a tangent has shape (1,), its primal (2,)"),
    "tangent count": (lambda: hvp(two, (X,), (X, X)), ValueError, "hvp: the tangents do not have the structure of the primals"),
    "tangent kind": (lambda: jvp(two, (X,), X), ValueError, "jvp: the tangents do not have the structure of the primals"),
    "tangent dtype": (
        lambda: jvp(two, X, Tensor([1.0, 2.0])), TypeError, "jvp: a tangent is float32, its primal float64",
    ),
    "cotangent shape": (lambda: vjp(two, X)[1](X), ValueError, "vjp: a cotangent has shape (2,), its result (2, 2)"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    call, error, message = MISTAKES[name]
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


# ---- checkpoint --------------------------------------------------------------------------

LAYERS, SEGMENT, WIDTH, ROWS = 24, 6, 64, 512


def deep_mlp(weights, x, wrap):
    """LAYERS layers in segments of SEGMENT, each called by `wrap`."""

    def segment(x, *ws):
        for w in ws:
            x = ndl.tanh(x @ w)
        return x

    for i in range(0, LAYERS, SEGMENT):
        x = wrap(segment, x, *weights[i : i + SEGMENT])
    return (x * x).sum()


def run_mlp(wrap):
    """Loss, gradients, and the peak memory of forward and backward."""
    rng = np.random.default_rng(0)
    cpu = ndl.cpu()  # whose memory is counted
    weights = [Tensor(rng.standard_normal((WIDTH, WIDTH)) / 8, device=cpu) for _ in range(LAYERS)]
    x = Tensor(rng.standard_normal((ROWS, WIDTH)), device=cpu, requires_grad=False)
    before = nd.memory_stats()["live_bytes"]
    nd.reset_peak()
    loss = deep_mlp(weights, x, wrap)
    forward = nd.memory_stats()["live_bytes"] - before
    loss.backward()
    return loss.numpy(), [w.grad.numpy() for w in weights], forward, nd.memory_stats()["peak_bytes"] - before


def test_checkpoint_same_numbers_less_memory():
    loss, grads, forward, peak = run_mlp(lambda f, *args: f(*args))
    loss2, grads2, forward2, peak2 = run_mlp(checkpoint)
    assert loss == loss2
    for a, b in zip(grads, grads2, strict=True):
        np.testing.assert_array_equal(a, b)
    block = ROWS * WIDTH * 4
    assert forward > LAYERS * block  # the tanhs; the products no gradient looks at
    assert forward2 < 2 * LAYERS / SEGMENT * block
    assert peak2 < 0.7 * peak


def test_checkpoint_second_order(requires_grad):
    x = t64(RNG.uniform(0.5, 1.5, (20, 20)), requires_grad)  # large enough to be dropped
    f = lambda x: ndl.exp(ndl.sin(x) * x)  # noqa: E731
    inner = grad(lambda x: f(x).sum())
    wrapped = grad(lambda x: checkpoint(f, x).sum())
    close(wrapped(x), inner(x).numpy(), 0)
    close(grad(lambda x: wrapped(x).sum())(x), grad(lambda x: inner(x).sum())(x).numpy(), 1e-12)
    close(grad(lambda x: checkpoint(inner, x).sum())(x), grad(lambda x: inner(x).sum())(x).numpy(), 1e-12)


def test_checkpoint_keeps_what_somebody_holds():
    held = []

    def f(x, *, factor):
        held.append(ndl.exp(x))
        return ndl.sin(ndl.cos(held[0])) * factor

    x = t64(np.ones(1000), requires_grad=True)
    y = checkpoint(f, x, factor=2.0)
    sine = y.inputs[0]
    assert sine.cached_data is None
    assert sine.inputs[0].cached_data is None
    assert held[0].cached_data is not None
    assert y.cached_data is not None
    close(gradients([y], [held[0]])[0], 2 * np.cos(np.cos(np.e)) * -np.sin(np.e) * np.ones(1000))


def test_checkpoint_sees_a_parameter_changed_in_place():
    w = t64(np.ones(1000), requires_grad=True)
    y = checkpoint(lambda w: ndl.sin(ndl.exp(w)), w)
    with ndl.no_grad():
        w[0] = 5.0
    with pytest.raises(
        RuntimeError, match=r"its input of shape \(1000,\) \(a leaf\) was changed in place after it was used"
    ):
        y.backward()


def test_checkpoint_without_gradients():
    with ndl.no_grad():
        y = checkpoint(lambda x: ndl.exp(x * 2), t64(V, requires_grad=True))
    assert y.is_leaf()
    close(y, np.exp(2 * V), 1e-12)


def test_examples():
    failed, tried = doctest.testmod(transforms)
    assert failed == 0
    assert tried >= 20
