"""Traces: every result is in them, and what no op has recorded is noted."""

import threading

import numpy as np
import pytest

import needle as ndl
from needle import Tensor, autograd, ops
from needle.autograd import is_tracing, trace

X = Tensor(np.arange(6.0).reshape(2, 3), requires_grad=False)
IDS = Tensor([[0, 1], [1, 0]], dtype="int64", requires_grad=False)


def made(happened):
    """The names of the ops of a trace."""
    values = [value.op for value in happened if not isinstance(value, tuple)]
    return " ".join([getattr(op, "name", type(op).__name__) for op in values])


def noted(happened):
    return [event[0] for event in happened if isinstance(event, tuple)]


#: function: the nodes of its trace
FUNCTIONS = {
    "no gradient wanted": (lambda x: ops.relu(x) + 1, "ReLU AddScalar"),
    "within no_grad": (lambda x: quiet(x), "Negate"),
    "comparison": (lambda x: ops.where(x > 0, x, 0.0), "greater Where"),
    "steps": (lambda x: ops.floor(x) + ops.sign(x), "floor sign EWiseAdd"),
    "cast": (lambda x: (x + 1).astype("int32"), "AddScalar cast"),
    "argmax": (lambda x: ops.argmax(x, 1), "argmax"),
    "any": (lambda x: ops.any(x > 1, 0), "greater any"),
    "positions": (lambda x: ops.take(x, IDS, 0), "Take"),
    "positions in floats": (lambda x: ops.take(x, X[:1, :2], 0), "GetItem cast Take"),
    "key": (lambda x: x[IDS], "copied GetItem"),
    "gather": (lambda x: ops.gather(x, IDS, 1), "copied copied GetItem"),
    "one_hot": (lambda x: ndl.init.one_hot(3, IDS), "one_hot"),
    "tuple": (lambda x: ops.split(x, 0)[0], "Split TupleGetItem"),
    "labels": (lambda x: ops.cross_entropy(x, IDS[0], "none", ignore_index=0), "GetItem not_equal where CrossEntropy Where"),
    "attention": (
        lambda x: ndl.attention_probabilities(x, x, IDS > 0, causal=True),
        "greater Transpose MatMul MulScalar logical_and any Where Where Softmax Where",
    ),
    "linear": (lambda x: ops.linear(x, X.mT @ X, X[0]), "Transpose MatMul GetItem Linear"),
}  # fmt: skip


def quiet(x):
    with ndl.no_grad():
        return -x


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_result_is_in_the_trace(name):
    function, names = FUNCTIONS[name]
    result, happened = trace(function, (X,))
    assert made(happened) == names
    assert noted(happened) == []
    assert result is happened[-1] and all(value.origin[0] == __file__ for value in happened)
    outside = function(X)
    assert outside.op is None and outside.numpy().tobytes() == result.numpy().tobytes(), "outside nothing is recorded"
    assert not is_tracing()


#: what is noted, beside the nodes
NOTED = {
    "numpy": (lambda x: x.numpy(), "read"),
    "item": (lambda x: x.sum().item(), "read"),
    "float": (lambda x: float(x.sum()), "read"),
    "tolist": (lambda x: x.tolist(), "read"),
    "array": (lambda x: np.asarray(x), "read"),
    "data": (lambda x: x.realize_cached_data(), "read"),
    "cached": (lambda x: x.cached_data, "read"),
    "dlpack": (lambda x: np.from_dlpack(x), "read"),
    "branch": (lambda x: bool(ops.any(x > 1)), "read"),
    "deepcopy": (lambda x: __import__("copy").deepcopy(x), "read"),
    "pickle": (lambda x: __import__("pickle").dumps(x), "read"),
    "another dtype": (lambda x: Tensor(x, dtype="float64"), "read"),
    "the same data": (lambda x: Tensor(x), ""),
    "detach": (lambda x: x.detach(), ""),
    "print": (lambda x: f"{x!r} {x}", ""),
    "shape": (lambda x: (x.shape, len(x), x.dtype, x.size), ""),
    "write": (lambda x: fresh().__setitem__(0, 1.0), "written"),
    "write from": (lambda x: fresh().__setitem__(0, x[0, 0]), "written read"),
    "write after use": (lambda x: rewritten(fresh()), "rewritten"),
    "in place": (lambda x: added(fresh(), x[0]), "written read"),
    "replaced": (lambda x: replaced(fresh(), x[0]), "read written"),
}


def fresh():
    return Tensor(np.zeros(3), requires_grad=False)


def rewritten(y):
    z = y + 1
    y[0] = 1.0
    return z


def added(y, x):
    with ndl.no_grad():
        y += x


def replaced(y, x):
    y.data = x


@pytest.mark.parametrize("name", NOTED)
def test_what_no_op_records_is_noted(name):
    function, events = NOTED[name]
    _, happened = trace(function, (X,))
    assert " ".join(noted(happened)) == events
    lines = [event[2] for event in happened if isinstance(event, tuple)]
    assert all(isinstance(number, int) and file.endswith((__file__, "copy.py")) for file, number in lines)


def test_gradients_are_the_same_in_a_trace():
    x = Tensor(np.arange(3.0))

    def step(x):
        y = (ops.where(x > 1, x * x, x) * 2).sum()
        y.backward()
        return x.grad.numpy().copy()

    wanted = step(x)
    found, happened = trace(step, (x,))
    assert found.tobytes() == wanted.tobytes()
    assert "Where" in made(happened)


def test_traces_within_traces():
    (_, inner), outer = trace(lambda: trace(lambda: ops.relu(X), ()), ())
    assert made(inner) == made(outer) == "ReLU"


def test_ends_with_an_error():
    with pytest.raises(ZeroDivisionError):
        trace(lambda: 1 / 0, ())
    assert not is_tracing()


def test_belongs_to_its_thread():
    def other():
        seen.append((is_tracing(), ops.relu(X).op))

    def function():
        worker = threading.Thread(target=other)
        worker.start()
        worker.join()

    seen: list = []
    assert trace(function, ()) == (None, [])
    assert seen == [(False, None)]


def test_captured_functions_are_called():
    """A replay makes no nodes, so a function that has a plan runs eagerly in a trace."""
    function = ndl.capture(lambda x: ops.relu(x) * 2)
    for _ in range(4):
        wanted = function(X).numpy()
    result, happened = trace(function, (X,))
    assert made(happened) == "ReLU MulScalar" and result.numpy().tobytes() == wanted.tobytes()
    fresh_one = ndl.capture(lambda x: ops.relu(x) * 2)
    assert all(made(trace(fresh_one, (X,))[1]) == "ReLU MulScalar" for _ in range(4))


def test_results_stay_while_the_trace_does():
    """Data that nobody else holds is dropped in large graphs, but not in a trace."""
    x = Tensor(np.ones((200, 200)))
    _, happened = trace(lambda x: ops.sqrt(x + 1).sum(), (x,))
    assert all(value.cached_data is not None for value in happened)


def test_a_node_is_kept_once():
    def function():
        y = ops.sign(X)
        autograd.keep_in_trace(y, ops.Negate(), (X,))

    with pytest.raises(ValueError, match="expected a constant"):
        trace(function, ())
