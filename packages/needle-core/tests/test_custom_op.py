"""needle.custom: operators made of two functions."""

import doctest

import numpy as np
import pytest

import needle as ndl
from needle import custom
from needle.custom import operator
from needle.transforms import grad


@operator
def cube(x):
    """x^3"""
    return x * x * x


@cube.defgradient
def _(out_grad, node):
    return out_grad * 3 * node.inputs[0] ** 2


@operator
def raised(x, *, power=2, scale=1.0):
    return x**power * scale


@raised.defgradient
def _(out_grad, node, *, power=2, scale=1.0):
    return out_grad * (power * scale) * node.inputs[0] ** (power - 1)


@operator(broadcasts=True)
def product(a, b):
    return a * b


@product.defgradient
def _(out_grad, node):
    a, b = node.inputs
    return out_grad * b, out_grad * a


@operator(outputs=2)
def halves(x, *, at):
    return x[:at], x[at:]


@halves.defgradient
def _(out_grad, node, *, at):
    return ndl.concatenate(out_grad.tuple())


@operator
def one_way(x):
    return x.exp()


X = np.array([1.0, -2.0, 3.0], "float32")
# op, what it does, its derivative
CASES = {
    "cube": (cube, lambda x: x**3, lambda x: 3 * x**2),
    "default constants": (raised, lambda x: x**2, lambda x: 2 * x),
    "constants": (lambda x: raised(x, power=3, scale=0.5), lambda x: 0.5 * x**3, lambda x: 1.5 * x**2),
    "nested": (lambda x: raised(cube(x)), lambda x: x**6, lambda x: 6 * x**5),
    "two inputs": (lambda x: product(x, x), lambda x: x**2, lambda x: 2 * x),
    "a constant input": (lambda x: product(x, 5.0), lambda x: 5 * x, lambda x: 5 + 0 * x),
    "broadcasts": (lambda x: product(x, x.reshape(3, 1)).sum(1), lambda x: x * x.sum(), lambda x: 2 * x.sum() + 0 * x),
    "two outputs": (
        lambda x: halves(x, at=1)[1] * halves(x, at=2)[0],
        lambda x: x[1:] * x[:-1],
        lambda x: np.array([x[1], x[0] + x[2], x[1]]),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_value_and_gradient(case):
    f, value, slope = CASES[case]
    x = ndl.Tensor(X)
    y = f(x)
    np.testing.assert_allclose(y.numpy(), value(X))
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), slope(X))


def test_second_order():
    np.testing.assert_allclose(grad(lambda x: grad(lambda x: cube(x).sum())(x).sum())(X).numpy(), 6 * X)


def test_names():
    x = ndl.Tensor(X)
    y = raised(x, power=3)
    assert type(y.op).__name__ == "raised"
    assert repr(y.op) == "raised(power=3)"
    assert repr(cube) == "<operator cube>"
    assert (cube.__name__, cube.__doc__) == ("cube", "x^3")
    assert type(cube(x).op) is type(cube(x).op)
    assert isinstance(y.op, ndl.TensorOp)
    assert isinstance(halves(x, at=1).op, ndl.TensorTupleOp)


def test_defgradient_gives_its_function_back():
    def gradient(out_grad, node):
        return out_grad

    @operator
    def same(x):
        return x + 0

    assert same.defgradient(gradient) is gradient


def test_operators_do_not_share_gradients():
    @operator
    def fresh(x):
        return x * 1

    with pytest.raises(NotImplementedError, match="fresh has no gradient"):
        fresh(ndl.Tensor(X)).backward()
    assert grad(lambda x: cube(x).sum())(X).shape == (3,)


@operator(outputs=2)
def three(x):
    return x, x, x


@operator(outputs=2)
def single(x):
    return x


MISTAKES = {
    "no gradient": (
        lambda x: one_way(x).backward(),
        NotImplementedError,
        "one_way has no gradient: add one with @one_way.defgradient",
    ),
    "no tensor": (lambda x: cube(3), TypeError, "cube: expected a Tensor, got int"),
    "tensor as constant": (
        lambda x: raised(x, power=x),
        TypeError,
        "raised: power is a Tensor; only positional arguments may be",
    ),
    "three for two": (three, TypeError, "three returned 3, expected a tuple of 2 arrays"),
    "one for two": (single, TypeError, "single returned NDArray, expected a tuple of 2 arrays"),
    "no function": (lambda x: operator(3), TypeError, "operator: expected a function, got int"),
    "no gradient function": (lambda x: cube.defgradient(3), TypeError, "cube.defgradient: expected a function, got int"),
    "outputs": (lambda x: operator(outputs=0)(abs), ValueError, "operator: outputs 0: expected 1 or more"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes(case):
    make, error, message = MISTAKES[case]
    with pytest.raises(error) as caught:
        make(ndl.Tensor(X))
    assert str(caught.value) == message


def test_examples():
    failed, tried = doctest.testmod(custom)
    assert failed == 0
    assert tried >= 6
