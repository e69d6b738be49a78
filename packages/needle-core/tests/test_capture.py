"""A captured function has the bits of the function: every op, forward and backward, and every way in which a call may differ."""

from contextlib import contextmanager

import numpy as np
import pytest
from op_table import DIFFERENTIABLE, ROWS, outputs

import needle as ndl
from needle.autograd import gradients

CALLS = 4  # two that are recorded, two that are replayed


def bits(value):
    """A result as something that == compares, bit by bit."""
    if isinstance(value, (ndl.Tensor, ndl.NDArray)):
        a = value.numpy()
        return a.shape, a.dtype.str, a.tobytes()
    if isinstance(value, ndl.TensorTuple):
        return tuple(bits(each) for each in value)
    if isinstance(value, (tuple, list)):
        return type(value).__name__, *map(bits, value)
    if isinstance(value, dict):
        return [(key, bits(entry)) for key, entry in value.items()]
    return type(value), repr(value)


def inputs_of(row, device, dtype, call):
    """The inputs of a row, other numbers with each call; integers, which are indices, only change places."""
    rng = np.random.default_rng(call)
    made = []
    for a in row.arrays(dtype):
        if call and a.dtype.kind == "f" and a.size:
            a = (
                a + rng.uniform(0, 0.01, a.shape).astype(a.dtype)
                if a.min() > 0
                else rng.permutation(a.ravel()).reshape(a.shape)
            )
        made.append(ndl.Tensor(np.array(a, order="C"), device=device, dtype=a.dtype))
    return made


# ---- Every op ----------------------------------------------------------------------------------------------------------------

#: Why rows of the table cannot be captured: they read a mask or make a tensor themselves, in the function.
HOST = ("reads values of an array on the host", "makes an array out of values on the host")


def compare(run, inputs):
    """Captured and eager calls agree in results and `.grad`; whether the captured one is replayed."""
    captured = ndl.capture(run)
    for call in range(CALLS):
        a, b = inputs(call), inputs(call)
        assert bits(captured(*a)) == bits(run(*b)), f"call {call}"
        for x, y in zip(a, b, strict=True):
            assert (x.grad is None) == (y.grad is None)
            assert x.grad is None or bits(x.grad) == bits(y.grad), f"gradient in call {call}"
    assert sum(plan.replays for plan in captured.plans) == (0 if captured.refusals else CALLS - 2)
    assert all(any(why in reason for why in HOST) for reason in captured.refusals)
    return not captured.refusals


@pytest.mark.filterwarnings("ignore::needle.capturing.CaptureWarning")
def test_ops(device):
    """Forward, and gradients by backward(), for new inputs each time."""
    dtype = "float64" if device == ndl.cpu_numpy() else "float32"
    replayed = 0
    for row in ROWS:

        def run(*tensors, row=row):
            results = outputs(row.fn(*tensors))
            if row.order:
                sum(((y * (y + 1.5)).sum() for y in results), start=0.0).backward()
            return results

        with naming(row):
            replayed += compare(run, lambda call, row=row: inputs_of(row, device, dtype, call))
    assert replayed > 0.9 * len(ROWS)


@pytest.mark.filterwarnings("ignore::needle.capturing.CaptureWarning")
def test_second_order():
    """Gradients of gradients, without backward(): everything that the function returns is detached."""
    replayed = 0
    for row in DIFFERENTIABLE:

        def run(*tensors, row=row):
            results = outputs(row.fn(*tensors))
            grads = [g for g in gradients(results, tensors, [ndl.ones_like(y) for y in results]) if g is not None]
            total = sum(((g * g).sum() for g in grads if g.requires_grad), start=0.0)
            second = gradients([total], tensors, [ndl.ones_like(total)]) if isinstance(total, ndl.Tensor) else []
            return [results, grads, second]

        with naming(row):
            replayed += compare(run, lambda call, row=row: inputs_of(row, ndl.cpu(), "float64", call))
    assert replayed > 0.9 * len(DIFFERENTIABLE)


@contextmanager
def naming(row):
    try:
        yield
    except BaseException as error:
        error.add_note(f"in row {row.id}")
        raise
