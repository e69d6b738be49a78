"""L-BFGS and Newton's method: functions whose minimum is known."""

import numpy as np
import pytest
from optim_formulas import both_devices, both_dtypes, parameters

import needle as ndl
from needle import optim


def tensors(device, dtype, *values):
    return [ndl.Tensor(np.array(v, dtype), dtype=dtype, device=getattr(ndl, device)()) for v in values]


def rosenbrock(x, y):
    """0 at (1, 1), at the end of a narrow bent valley"""
    return ((1 - x) ** 2 + 100 * (y - x * x) ** 2).sum()


@both_devices
@pytest.mark.parametrize("dtype, near", [("float32", 1e-2), ("float64", 1e-6)])
@pytest.mark.parametrize("start", [(-1.2, 1.0), (3.0, -4.0), (0.0, 0.0)])
def test_lbfgs_on_rosenbrock(start, dtype, near, device):
    x, y = tensors(device, dtype, *start)
    optimizer = optim.LBFGS([x, y], max_iter=100)
    first = optimizer.step(lambda: rosenbrock(x, y))
    assert first == pytest.approx((1 - start[0]) ** 2 + 100 * (start[1] - start[0] ** 2) ** 2, rel=1e-6)
    assert x.dtype == dtype and optimizer.t < 80
    assert [x.item(), y.item()] == pytest.approx([1, 1], abs=near)


def test_lbfgs_may_be_asked_in_parts():
    """Steps of few iterations, and a state that goes on bit for bit."""
    results = []
    for interrupted in (False, True):
        x, y = tensors("cpu", "float64", -1.2, 1.0)
        optimizer = optim.LBFGS([x, y], max_iter=5, history=4)
        for i in range(12):
            if interrupted and i == 6:
                state = optimizer.state_dict()
                optimizer = optim.LBFGS([x, y], max_iter=5, history=4)
                optimizer.load_state_dict(state)
            optimizer.step(lambda x=x, y=y: rosenbrock(x, y))
        assert len(optimizer.pairs) <= 4
        results.append((x.item(), y.item()))
    assert results[0] == results[1] == pytest.approx((1, 1), abs=1e-5)
    with pytest.raises(ValueError, match=r"^LBFGS.load_state_dict: pairs of 2 elements, the parameters have 1$"):
        optim.LBFGS([x]).load_state_dict(state)


@both_dtypes
def test_lbfgs_on_a_quadratic(dtype):
    """Many parameters of several shapes, one of which has no part in the loss; a closure may call backward itself."""
    params, values = parameters(dtype)
    target = [np.asarray(v + 1) for v in values]
    optimizer = optim.LBFGS(params, max_iter=30)

    def closure():
        optimizer.reset_grad()
        scaled = [
            ((p - ndl.Tensor(t, dtype=dtype)) ** 2).sum() * (i + 1)
            for i, (p, t) in enumerate(zip(params, target, strict=True))
        ]
        loss = scaled[0] + scaled[1] + scaled[3] + scaled[5]
        loss.backward()
        return loss

    optimizer.step(closure)
    for i, (p, t, v) in enumerate(zip(params, target, values, strict=True)):
        np.testing.assert_allclose(p.numpy(), v if i in (2, 4) else t, atol=1e-4)


def test_lbfgs_without_a_search_and_where_there_is_no_minimum():
    (w,) = tensors("cpu", "float64", [3.0, -4.0])
    optimizer = optim.LBFGS([w], line_search=False, max_iter=50)
    optimizer.step(lambda: (w * w * ndl.Tensor([1.0, 3.0], dtype="float64")).sum())
    np.testing.assert_allclose(w.numpy(), [0, 0], atol=1e-6)
    (w,) = tensors("cpu", "float64", [1.0])
    optim.LBFGS([w], max_iter=3).step(lambda: w.sum())  # falls for ever: the search gives up
    optim.LBFGS([w], max_iter=3).step(lambda: ndl.log(w - 1e300).sum())  # NaN at once
    assert np.isfinite(w.numpy()).all()


@both_devices
@both_dtypes
def test_newton_on_a_quadratic(dtype, device):
    """One step, over two parameters whose second derivatives mix."""
    rng = np.random.default_rng(0)
    m = rng.normal(size=(5, 5))
    a, c = m @ m.T + np.eye(5), rng.normal(size=(5, 1))
    x, y = tensors(device, dtype, np.ones((2, 1)), np.ones((3, 1)))
    ta, tc = tensors(device, dtype, a, c)
    parts = [[slice(0, 2), slice(2, 5)][i] for i in (0, 1)]

    def closure():
        loss = x.transpose() @ tc[parts[0]] + y.transpose() @ tc[parts[1]]
        for left, rows in ((x, parts[0]), (y, parts[1])):
            for right, columns in ((x, parts[0]), (y, parts[1])):
                loss = loss + left.transpose() @ ta[rows, columns] @ right / 2
        return loss.sum()

    optim.Newton([x, y]).step(closure)
    expected = -np.linalg.solve(a, c)
    np.testing.assert_allclose(
        np.concatenate([x.numpy(), y.numpy()]), expected, atol=1e-4 if dtype == "float32" else 1e-10
    )


def test_newton_on_rosenbrock():
    x, y = tensors("cpu", "float64", -1.2, 1.0)
    optimizer = optim.Newton([x, y])
    for _ in range(8):
        optimizer.step(lambda: rosenbrock(x, y))
    assert [x.item(), y.item()] == pytest.approx([1, 1], abs=1e-8)
    assert optimizer.state_dict()["t"] == 8


def test_newton_where_the_hessian_is_singular():
    (w,) = tensors("cpu", "float64", [3.0, 1.0])
    with pytest.raises(ValueError, match=r"^Newton.step: the Hessian is singular: try a damping$"):
        optim.Newton([w]).step(lambda: w.sum())
    optim.Newton([w], damping=2.0).step(lambda: w.sum())
    assert w.tolist() == [2.5, 0.5]
