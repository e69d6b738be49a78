"""The programs under apps/ do what they promise."""

import runpy

import numpy as np
import pytest


@pytest.fixture(scope="module")
def demo(repository):
    return runpy.run_path(str(repository / "apps" / "ndarray_demo.py"))


def test_demo_learns_the_spirals(demo, capsys):
    weights, biases, x, y, accuracy = demo["train"](steps=300, seed=0, hidden=32)
    assert accuracy > 0.99
    assert capsys.readouterr().out.count("accuracy") == 8
    drawn = demo["picture"](weights, biases, x, y, columns=40, rows=20).splitlines()
    assert [len(line) for line in drawn] == [40] * 20
    assert set("".join(drawn)) == set(" .xo")


def test_demo_repeats_itself_bit_by_bit(demo):
    first, second = (demo["train"](steps=20, seed=3, hidden=8)[0] for _ in range(2))
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(first, second, strict=True))


def test_demo_gradients_are_those_of_the_loss(demo):
    """Central differences of the loss by every weight, in the precision float32 allows."""
    from needle import backend_ndarray as nd

    rng = np.random.default_rng(1)
    x, y = demo["spirals"](rng)
    weights, biases = demo["init"](rng, 3)
    points, targets = nd.array(x), nd.array(np.eye(2)[y])

    def loss():
        found = demo["gradients"](weights, demo["forward"](weights, biases, points), targets)[0]
        return float(found.numpy().reshape(-1)[0])

    _, grads = demo["gradients"](weights, demo["forward"](weights, biases, points), targets)
    for param, grad in zip([*weights, *biases], grads, strict=True):
        for index in np.ndindex(param.shape):
            kept, differences = param.numpy(), []
            for step in (1e-2, -1e-2):
                moved = kept.copy()
                moved[index] += step
                param[...] = nd.array(moved)
                differences.append(loss())
            param[...] = nd.array(kept)
            assert abs((differences[0] - differences[1]) / 2e-2 - grad.numpy()[index]) < 2e-4
