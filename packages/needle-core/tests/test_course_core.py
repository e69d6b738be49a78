# ruff: noqa: NPY002  (the course draws from the legacy generator)
"""What course code relies on: its spellings, its gradient check, its order of nodes, its numbers."""

import gc

import numpy as np
import pytest

import needle as ndl
from needle import ops


@pytest.fixture(autouse=True)
def double(monkeypatch):
    """The course checks gradients in float64."""
    ndl.set_default_dtype("float64")
    np.random.seed(0)
    yield
    ndl.set_default_dtype(None)


def gradient_check(f, *args, tol=1e-6, backward=False, **kwargs):
    """The course's: perturbs elements in place, asks the op itself or backward."""
    eps = 1e-4
    numerical = [np.zeros(a.shape) for a in args]
    for i in range(len(args)):
        for j in range(args[i].realize_cached_data().size):
            args[i].realize_cached_data().flat[j] += eps
            f1 = float(f(*args, **kwargs).numpy().sum())
            args[i].realize_cached_data().flat[j] -= 2 * eps
            f2 = float(f(*args, **kwargs).numpy().sum())
            args[i].realize_cached_data().flat[j] += eps
            numerical[i].flat[j] = (f1 - f2) / (2 * eps)
    if not backward:
        out = f(*args, **kwargs)
        computed = [x.numpy() for x in out.op.gradient_as_tuple(ndl.Tensor(np.ones(out.shape)), out)]
    else:
        f(*args, **kwargs).sum().backward()
        computed = [a.grad.numpy() for a in args]
    assert sum(np.linalg.norm(c - n) for c, n in zip(computed, numerical, strict=True)) < tol


def randn(*shape):
    return ndl.Tensor(np.random.randn(*shape))


CHECKS = {
    "divide": (ndl.divide, lambda: (randn(5, 4), ndl.Tensor(5 + np.random.randn(5, 4))), {}),
    "divide_scalar": (ndl.divide_scalar, lambda: (randn(5, 4),), {"scalar": np.random.randn(1)}),
    "matmul simple": (ndl.matmul, lambda: (randn(5, 4), randn(4, 5)), {}),
    "matmul batched": (ndl.matmul, lambda: (randn(6, 6, 5, 4), randn(6, 6, 4, 3)), {}),
    "matmul broadcast b": (ndl.matmul, lambda: (randn(6, 6, 5, 4), randn(4, 3)), {}),
    "matmul broadcast a": (ndl.matmul, lambda: (randn(5, 4), randn(6, 6, 4, 3)), {}),
    "reshape": (ndl.reshape, lambda: (randn(5, 4),), {"shape": (4, 5)}),
    "negate": (ndl.negate, lambda: (randn(5, 4),), {}),
    "transpose axes": (ndl.transpose, lambda: (randn(3, 5, 4),), {"axes": (1, 2)}),
    "transpose outer": (ndl.transpose, lambda: (randn(3, 5, 4),), {"axes": (0, 1)}),
    "transpose": (ndl.transpose, lambda: (randn(3, 5, 4),), {}),
    "broadcast_to column": (ndl.broadcast_to, lambda: (randn(3, 1),), {"shape": (3, 3)}),
    "broadcast_to row": (ndl.broadcast_to, lambda: (randn(1, 3),), {"shape": (3, 3)}),
    "broadcast_to number": (ndl.broadcast_to, lambda: (randn(1),), {"shape": (3, 3, 3)}),
    "broadcast_to 0-d": (ndl.broadcast_to, lambda: (randn(),), {"shape": (3, 3, 3)}),
    "broadcast_to rank": (ndl.broadcast_to, lambda: (randn(5, 4, 1),), {"shape": (5, 4, 3)}),
    "summation (1,)": (ndl.summation, lambda: (randn(5, 4),), {"axes": (1,)}),
    "summation 0": (ndl.summation, lambda: (randn(5, 4),), {"axes": 0}),
    "summation (0, 1)": (ndl.summation, lambda: (randn(5, 4),), {"axes": (0, 1)}),
    "summation all": (ndl.summation, lambda: (randn(5, 4, 1),), {}),
    "power_scalar": (ndl.power_scalar, lambda: (randn(5, 4),), {"scalar": 3}),
    "tanh": (ndl.tanh, lambda: (randn(5, 4),), {}),
    "logsumexp": (ndl.logsumexp, lambda: (randn(3, 3, 3),), {"axes": (1, 2)}),
    "logsoftmax": (ndl.logsoftmax, lambda: (randn(3, 4),), {}),
    "flip": (ndl.flip, lambda: (randn(2, 3, 4),), {"axes": (0, 1)}),
    "dilate": (ndl.dilate, lambda: (randn(2, 3, 4),), {"axes": (0, 2), "dilation": 1}),
}


@pytest.mark.parametrize("backward", [False, True], ids=["op", "backward"])
@pytest.mark.parametrize(("f", "args", "kwargs"), CHECKS.values(), ids=CHECKS)
def test_gradient_check(f, args, kwargs, backward):
    gradient_check(f, *args(), backward=backward, **kwargs)


def test_gradient_check_of_an_expression():
    gradient_check(
        lambda a, b, c: ndl.summation((a @ b + c) * (a @ b), axes=None),
        randn(10, 9),
        randn(9, 8),
        randn(10, 8),
        backward=True,
        tol=1e-5,
    )
    gradient_check(
        lambda a, b: ndl.summation(ndl.broadcast_to(a, shape=(10, 9)) * b, axes=None),
        randn(10, 1),
        randn(10, 9),
        backward=True,
    )
    gradient_check(
        lambda a, b, c: ndl.summation(ndl.reshape(a, shape=(10, 10)) @ b / 5 + c, axes=None),
        randn(100),
        randn(10, 5),
        randn(10, 5),
        backward=True,
    )


def test_gradient_of_gradient():
    x2, x3 = ndl.Tensor([6]), ndl.Tensor([0])
    y = x2 * x2 + x2 * x3
    y.backward()
    grad_x2, grad_x3 = x2.grad, x3.grad
    assert grad_x2.item() == 2 * 6 + 0 and grad_x3.item() == 6
    grad_x2.backward()
    assert x2.grad.item() == 2 and x3.grad.item() == 1


def test_topological_order_of_expressions():
    a, b = ndl.Tensor([[0.88282157]]), ndl.Tensor([[0.90170084]])
    c = 3 * a * a + 4 * b * a - a
    values = [x.numpy().item() for x in ndl.autograd.find_topo_sort([c])]
    u, v = a.item(), b.item()
    expected = [u, 3 * u, 3 * u * u, v, 4 * v, 4 * v * u, 3 * u * u + 4 * v * u, -u, 3 * u * u + 4 * v * u - u]
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    d = (a + b) @ b / 5 + 10
    e = (d + d) @ d @ d / d + d
    order = ndl.autograd.find_topo_sort([e])
    assert len(order) == len(set(order)) and order[-1] is e and order[:2] == [a, b]
    place = {node: i for i, node in enumerate(order)}
    assert all(place[x] < place[node] for node in order for x in node.inputs)


def test_tuples_of_the_course():
    x = randn(3, 2, 4)
    t = ops.split(x, axis=0)
    assert isinstance(t, ndl.TensorTuple) and len(t) == 3 and isinstance(t.op, ops.Split)
    assert t[1].shape == (2, 4) and type(t[1].op) is ops.TupleGetItem and t.tuple()[2].shape == (2, 4)
    two = ops.fused_add_scalars(x, 1, 2)
    np.testing.assert_allclose((two[0] + two[1]).numpy(), 2 * x.numpy() + 3)
    both = t + t
    np.testing.assert_allclose(both[0].numpy(), 2 * x.numpy()[0])
    assert not t.detach().requires_grad and len(t.detach()) == 3
    made = ops.make_tuple(x, x)
    assert made[0] is x and len(made) == 2


def test_data_is_a_detached_view_and_can_be_set():
    x = randn(2, 3)
    assert not x.data.requires_grad and x.data.realize_cached_data() is x.realize_cached_data()
    x.data = ndl.Tensor(np.zeros((4,)))  # the shape may differ
    assert x.shape == (4,) and x.requires_grad
    with pytest.raises(TypeError, match=r"a float32 tensor for one of float64"):
        x.data = ndl.Tensor([1.0], dtype="float32")
    with pytest.raises(TypeError, match=r"expected a Tensor, got float"):
        x.data = 1.0


def test_writing_through_flat():
    x = ndl.Tensor(np.zeros((2, 2)))
    x.realize_cached_data().flat[3] += 0.5
    assert x.numpy().tolist() == [[0, 0], [0, 0.5]]


def test_live_values_are_counted():
    gc.collect()  # what other tests have left must not go meanwhile
    start = ndl.autograd.TENSOR_COUNTER
    x = randn(2)
    y = x + x
    assert start + 2 == ndl.autograd.TENSOR_COUNTER
    del y
    assert start + 1 == ndl.autograd.TENSOR_COUNTER
