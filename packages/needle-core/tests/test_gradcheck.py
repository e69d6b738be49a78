"""check_gradients finds what is wrong, and nothing else."""

import doctest

import numpy as np
import pytest

import needle as ndl
import needle.testing
from needle import ops
from needle.testing import check_gradients

RNG = np.random.default_rng(0)


def tensor(*shape, seed=0, **kwargs):
    values = np.random.default_rng(seed).uniform(0.5, 2.0, shape)
    return ndl.Tensor(values, **{"dtype": "float64", **kwargs})


def op(forward, backward, kind=ndl.TensorOp):
    """An op out of two functions."""

    class Made(kind):
        def compute(self, *arrays):
            return forward(*arrays)

        def gradient(self, out_grad, node):
            return backward(out_grad, node)

    return Made()


class WrongSecond(ndl.TensorOp):
    """x^3 with a derivative that has the right value, and a wrong derivative of its own"""

    def compute(self, x):
        return x * x * x

    def gradient(self, out_grad, node):
        x = node.inputs[0]
        return out_grad * x * x.detach() * 3


RIGHT = {
    "a function": (lambda x: (x * x).tanh(), [(2, 3)]),
    "an op": (ops.Exp(), [(3,)]),
    "two inputs": (lambda a, b: a @ b, [(2, 3), (3,)]),
    "a tuple": (lambda a, b: (a * b, a + b), [(3,), (2, 3)]),
    "a list": (lambda a: [a * a], [(3,)]),
    "a TensorTuple": (lambda a: ops.split(a * a, 0), [(2, 3)]),
    "linear": (lambda a: a * 3, [(3,)]),
    "constant output beside": (lambda a: (a * a, a.detach() * 0 + 1), [(3,)]),
    "int output beside": (lambda a: (a * a, a.argmax()), [(3,)]),
    "an input that is not used": (lambda a, b: a * a, [(3,), (2,)]),
    "the input itself": (lambda a: a, [(3,)]),
    "nothing": (lambda a: a * a, [(0, 3)]),
    "0-d": (lambda a: a * a, [()]),
    "large values": (lambda a: (a * 1e-6).sin(), [(3,)]),
}

WRONG = {
    "sign": (op(lambda x: x.sin(), lambda g, node: -g * ops.cos(node.inputs[0])), 1, "by gradients, relative error 2"),
    "factor": (op(lambda x: x * x, lambda g, node: g * node.inputs[0]), 1, "relative error 0.5"),
    "missing term": (op(lambda x: x * x.exp(), lambda g, node: g * ops.exp(node.inputs[0])), 1, "order 1"),
    "small mistake": (op(lambda x: x * x, lambda g, node: g * node.inputs[0] * 2.0001), 1, "relative error 5e-05"),
    "one element": (
        op(lambda x: x * x, lambda g, node: ops.setitem(g * node.inputs[0] * 2, (0, 1), 0.0)),
        1,
        "order 1",
    ),
    "transposed": (op(lambda x: x * x, lambda g, node: (g * node.inputs[0] * 2).T.reshape(node.shape)), 1, "order 1"),
    "missing gradient": (op(lambda x: x * x, lambda g, node: None), 1, "but there is no gradient"),
    "no graph": (lambda x: x.detach() * 2.0, 1, "but there is no gradient"),
    "zero": (op(lambda x: x * x, lambda g, node: g * 0.0), 1, ", 0 by gradients"),
    "NaN": (op(lambda x: x * x, lambda g, node: g * float("nan")), 1, "nan by gradients"),
    "second derivative only": (WrongSecond(), 2, "order 2, input 0"),
    "no second derivative": (
        op(lambda x: x * x, lambda g, node: g * node.inputs[0].detach() * 2),
        2,
        "but there is no gradient",
    ),
    "gradient in out_grad": (
        op(lambda x: x * x, lambda g, node: g.detach() * node.inputs[0] * 2),
        2,
        "the gradient of output 0",
    ),
}


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize(("fn", "shapes"), RIGHT.values(), ids=RIGHT)
def test_right(fn, shapes, order, device):
    inputs = [tensor(*shape, seed=i, device=device) for i, shape in enumerate(shapes)]
    if fn is RIGHT["large values"][0]:
        inputs = [ndl.Tensor(x.numpy() * 1e6, dtype="float64", device=device) for x in inputs]
    check_gradients(fn, *inputs, order=order)
    assert [x.grad for x in inputs] == [None] * len(inputs)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("fn", "order", "message"), WRONG.values(), ids=WRONG)
def test_wrong(fn, order, message, seed, device):
    x = tensor(2, 3, device=device)
    if order == 2:
        check_gradients(fn, x, order=1, seed=seed)
    with pytest.raises(AssertionError) as caught:
        check_gradients(fn, x, order=2, seed=seed)
    assert message in str(caught.value)
    assert f"order {order}, " in str(caught.value) and "by central differences" in str(caught.value)
    if order == 1:
        assert "input 0 of shape (2, 3)" in str(caught.value)


def test_third_order_is_seen():
    """Right up to the second derivative."""
    second = op(lambda x: x * x * 3, lambda g, node: g * node.inputs[0].detach() * 6)
    first = op(lambda x: x * x * x, lambda g, node: g * second(node.inputs[0]))
    check_gradients(first, tensor(3))
    with pytest.raises(AssertionError, match=r"order 3, input 0"):
        check_gradients(first, tensor(3), order=3)


def test_the_input_at_fault_is_named():
    wrong = op(lambda a, b: a * b, lambda g, node: (g * node.inputs[1], g * node.inputs[0] * 2))
    with pytest.raises(AssertionError, match=r"order 1, input 2 of shape \(3,\)"):
        check_gradients(lambda c, a, b: wrong(a, b) * c, tensor(3), tensor(3), tensor(3))


def test_wrong_entry_of_a_tuple():
    wrong = op(lambda x: (x * 2, x * 3), lambda g, node: g[0] * 2 + g[1] * 2, ndl.TensorTupleOp)
    with pytest.raises(AssertionError, match="order 1"):
        check_gradients(wrong, tensor(3))


@pytest.mark.parametrize("name", ["EWiseMul", "Exp", "Summation", "GetItem", "MatMul"])
def test_broken_op_is_seen(name, monkeypatch):
    """The ops of this package, broken on purpose."""
    cls = getattr(ops, name)
    right = cls.gradient

    def broken(self, out_grad, node):
        grads = right(self, out_grad, node)
        return tuple(g * 1.01 for g in grads) if isinstance(grads, tuple) else grads * 1.01

    def fn(x):
        return ((x * x).exp() @ x.T)[1:].sum(0)

    check_gradients(fn, tensor(2, 3))
    monkeypatch.setattr(cls, "gradient", broken)
    with pytest.raises(AssertionError, match="order 1"):
        check_gradients(fn, tensor(2, 3))


def test_messages_of_the_engine_come_through():
    wrong = op(lambda x: x * 2, lambda g, node: g[0])
    with pytest.raises(ValueError, match=r"Made.gradient returned shape \(3,\) for an input of shape \(2, 3\)"):
        check_gradients(wrong, tensor(2, 3))
    wrong = op(lambda a: a * 2, lambda g, node: (g, g))
    with pytest.raises(ValueError, match=r"Made.gradient returned 2 gradients for 1 inputs"):
        check_gradients(wrong, tensor(3))


def test_constants_are_held():
    weight = tensor(3, dtype="float32", requires_grad=False)
    index = ndl.Tensor(np.array([2, 0]))
    mask = ndl.Tensor(np.array([True, False]))
    seen = []

    def fn(x, weight, index, mask):
        seen.append((weight, index, mask))
        return ops.where(mask, (x * weight.detach())[index], 0.0)

    check_gradients(fn, tensor(3), weight, index, mask)
    assert len(seen) > 3 and all(s[0] is weight and s[1] is index and s[2] is mask for s in seen)


def test_inputs_and_seed():
    x = tensor(3)
    before = x.numpy()
    calls = []
    check_gradients(lambda x: calls.append(x.numpy()) or x * x, x, seed=1)
    again = list(calls)
    calls.clear()
    check_gradients(lambda x: calls.append(x.numpy()) or x * x, x, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(again, calls, strict=True))
    calls.clear()
    check_gradients(lambda x: calls.append(x.numpy()) or x * x, x, seed=2)
    assert not all(np.array_equal(a, b) for a, b in zip(again, calls, strict=True))
    assert np.array_equal(x.numpy(), before)


@pytest.mark.parametrize("mode", [ndl.no_grad, ndl.lazy_mode])
def test_within_modes(mode):
    with mode():
        check_gradients(ops.exp, tensor(3))
        with pytest.raises(AssertionError, match="order 1"):
            check_gradients(WRONG["factor"][0], tensor(3))


def test_tolerances_and_step_are_used():
    almost = op(lambda x: x * x, lambda g, node: g * node.inputs[0] * 2.0001)
    check_gradients(almost, tensor(3), rtol=1e-3, order=1)
    check_gradients(almost, tensor(3), atol=1.0, order=1)
    with pytest.raises(AssertionError):
        check_gradients(ops.exp, tensor(3), eps=0.1)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        ((ops.exp, tensor(3, dtype="float32")), {}, TypeError, 'input 0 is float32, too coarse for differences: use x.'),
        ((ops.add, tensor(3), 2.0), {}, TypeError, "input 1: expected a Tensor, got float"),
        ((ops.exp, tensor(3, requires_grad=False)), {}, ValueError, "no input requires a gradient"),
        ((ops.exp, tensor(3)), {"order": 0}, ValueError, "order 0: expected 1 or more"),
        ((lambda x: x.argmax(), tensor(3)), {}, ValueError, "fn returns no float tensor"),
        ((lambda x: (x, 1.0), tensor(3)), {}, TypeError, "fn returned float, expected tensors"),
        ((lambda x: x * RNG.random(), tensor(3)), {}, ValueError, "fn gives another result each time"),
    ],
    ids=["float32", "number", "constants", "order", "int result", "no tensors", "random"],
)  # fmt: skip
def test_refused(args, kwargs, error, message):
    with pytest.raises(error) as caught:
        check_gradients(*args, **kwargs)
    assert f"check_gradients: {message}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_example_of_the_docstring():
    assert doctest.testmod(needle.testing).attempted > 3
    assert doctest.testmod(needle.testing).failed == 0
