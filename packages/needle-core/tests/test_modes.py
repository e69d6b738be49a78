"""no_grad, enable_grad, lazy mode, anomaly mode: what they do, and that each thread has its own."""

import threading

import numpy as np
import pytest

import needle as ndl
from needle import autograd


def test_no_grad_records_nothing():
    x = ndl.Tensor([1.0])
    with ndl.no_grad():
        y = x * 2
        with ndl.enable_grad():
            z = x * 2
        assert not ndl.is_grad_enabled()
    assert not y.requires_grad and z.requires_grad and ndl.is_grad_enabled()


def test_as_decorators():
    x = ndl.Tensor([1.0])

    @ndl.no_grad()
    def double(x):
        return x * 2

    assert not double(x).requires_grad and not double(x).requires_grad and (x * 2).requires_grad
    with ndl.set_grad_enabled(False):
        assert not (x * 2).requires_grad
        with ndl.set_grad_enabled(True):
            assert (x * 2).requires_grad


def test_modes_end_with_an_exception():
    for mode in (ndl.no_grad(), ndl.lazy_mode(), ndl.anomaly_mode()):
        with pytest.raises(ZeroDivisionError), mode:
            raise ZeroDivisionError
    y = ndl.Tensor([1.0]) * 2
    assert y.requires_grad and y.cached_data is not None
    (y / 0.0).numpy()


def test_each_thread_has_its_own():
    x = ndl.Tensor([1.0])
    seen = {}

    def work():
        y = x * 2
        seen["other"] = (y.requires_grad, y.cached_data is not None)
        with ndl.no_grad():
            inside.set()
            outside.wait(10)

    inside, outside = threading.Event(), threading.Event()
    with ndl.no_grad(), ndl.lazy_mode():
        thread = threading.Thread(target=work)
        thread.start()
        inside.wait(10)
    seen["here"] = (x * 2).requires_grad
    outside.set()
    thread.join()
    assert seen == {"other": (True, True), "here": True}


# ---- Lazy --------------------------------------------------------------------------


class Counted(ndl.TensorOp):
    calls = 0

    def compute(self, x):
        type(self).calls += 1
        return x * 2

    def gradient(self, out_grad, node):
        return out_grad * 2


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr(Counted, "calls", 0)
    return Counted


def test_nothing_is_computed_until_somebody_looks(counted):
    x = ndl.Tensor([1.0, 2.0])
    with ndl.lazy_mode():
        y = counted()(x)
        z = (y + y).sum()
        assert counted.calls == 0 and y.cached_data is None and z.cached_data is None
        assert z.item() == 12 and counted.calls == 1
        assert y.numpy().tolist() == [2, 4] and counted.calls == 1
        z.backward()
        assert x.grad.cached_data is None
        assert x.grad.numpy().tolist() == [4, 4] and counted.calls == 1


def test_the_global_switch(monkeypatch):
    monkeypatch.setattr(autograd, "LAZY_MODE", True)
    x = ndl.Tensor([1.0])
    assert (x * 2).cached_data is None
    with ndl.lazy_mode(False):
        assert (x * 2).cached_data is not None
    monkeypatch.setattr(autograd, "LAZY_MODE", False)
    assert (x * 2).cached_data is not None


def test_a_lazy_constant_forgets_its_graph_when_computed():
    x = ndl.Tensor([1.0], requires_grad=False)
    with ndl.lazy_mode():
        y = x * 2 + 1
    assert not y.is_leaf() and y.item() == 3 and y.is_leaf() and y.inputs == ()


def test_a_lazy_value_notices_a_changed_input():
    x = ndl.Tensor(np.ones((4, 4)))
    with ndl.lazy_mode():
        y = x * 2
    x.data = ndl.Tensor(np.zeros((4, 4)))
    with pytest.raises(RuntimeError, match=r"MulScalar: its input .* was changed in place"):
        y.numpy()


def test_a_failed_computation_can_be_seen_again():
    with ndl.lazy_mode():
        y = ndl.Tensor(np.ones((2, 3))) + ndl.Tensor(np.ones((4,)))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"\(2, 3\) and \(4,\)"):
            y.numpy()


# ---- Anomalies --------------------------------------------------------------------------


def test_the_first_bad_value_is_named_with_its_line():
    x = ndl.Tensor([[1.0, 2.0], [3.0, 0.0]])
    with ndl.anomaly_mode(inf=True), pytest.raises(ndl.AnomalyError) as caught:
        ndl.log(x * 1.0)  # the line
    text = str(caught.value)
    assert "Log gave -inf at (1, 1) of shape (2, 2)" in text
    assert "test_modes.py" in text and "ndl.log(x * 1.0)  # the line" in text


def test_a_bad_gradient_is_named_with_the_line_of_its_op():
    x = ndl.Tensor([0.0, 1.0])
    with ndl.anomaly_mode(inf=True):
        y = ndl.sqrt(x)  # fine forward
        with pytest.raises(ndl.AnomalyError, match=r"the gradient of Sqrt is inf at .* ndl.sqrt.x.  # fine forward"):
            y.sum().backward()
    z = ndl.sqrt(x)
    with (
        ndl.anomaly_mode(inf=True),
        pytest.raises(ndl.AnomalyError, match=r"the gradient of Sqrt .* a line outside of anomaly_mode"),
    ):
        z.sum().backward()
    z.sum().backward()
    assert np.isinf(x.grad.numpy()[0])


def test_lazy_and_tuples_and_0d():
    with ndl.anomaly_mode(), ndl.lazy_mode():
        y = ndl.log(ndl.Tensor(0.0))  # recorded here
    with (
        ndl.anomaly_mode(inf=True),
        pytest.raises(ndl.AnomalyError, match=r"Log gave -inf at \(\) of shape \(\).*recorded here"),
    ):
        y.item()
    with ndl.anomaly_mode(), pytest.raises(ndl.AnomalyError, match=r"Split gave nan"):
        ndl.split(ndl.Tensor([[1.0], [float("nan")]]), 0)


NAN, INF = float("nan"), float("inf")


def attention(x):
    """Written out, with a mask of -inf."""
    mask = ndl.Tensor(np.triu(np.full((3, 3), -INF, "float32"), 1), requires_grad=False)
    return ndl.softmax(x @ x.T + mask) @ x


def masked(x):
    return ndl.softmax(ndl.where(ndl.Tensor(np.tril(np.ones((3, 3), bool))), x @ x.T, -INF)) @ x


@pytest.mark.parametrize(
    "fn", [attention, masked, lambda x: ndl.log(x * 0.0), lambda x: x / 0.0, lambda x: (x * 0.0).sqrt()]
)
def test_infinite_values_are_reported_only_where_asked_for(fn):
    x = ndl.Tensor(np.arange(1.0, 7.0).reshape(3, 2))
    with ndl.anomaly_mode():
        fn(x)
        if fn in (attention, masked):
            fn(x).sum().backward()
    with ndl.anomaly_mode(inf=True), pytest.raises(ndl.AnomalyError, match=r"inf at"):
        fn(x).sum().backward()


def test_nan_is_reported_by_both():
    for inf in (False, True):
        with ndl.anomaly_mode(inf=inf), pytest.raises(ndl.AnomalyError, match=r"gave nan at \(1,\) of shape \(2,\)"):
            ndl.log(ndl.Tensor([INF if not inf else 1.0, -1.0]))
        with ndl.anomaly_mode(inf=inf), ndl.anomaly_mode(False):
            ndl.log(ndl.Tensor([-1.0]))


def test_unknown_modes_are_refused():
    with pytest.raises(ValueError, match=r"expected no_grad, lazy, anomaly or torch"):
        autograd.set_mode("other", 1)
