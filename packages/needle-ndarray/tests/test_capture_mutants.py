"""Passes that are wrong on purpose: the table of functions, replayed with other numbers, tells each from the right one."""

import inspect
import itertools
import types

import numpy as np
import pytest
from test_capture_arrays import FUNCTIONS, array, poison, recorded, same

import needle_ndarray as nd
from needle_ndarray.backend import SCATTER
from needle_ndarray.capture import passes
from needle_ndarray.replay import like

CPU = nd.zeros((1,), device=nd.cpu()).backend


def copy_of_a_part(a):
    b = a * 2.0
    return b[:32].copy(), b.sum()


def result_read_and_copied(a):
    b = a + 1.0
    c = b.T.compact()
    return c * 2.0, c + 1.0


def written_after_the_copy_is_made(a):
    b = a + 1.0
    c = b.T.compact()
    b.fill(5.0)
    return c * 2.0, b


def written_between(a):
    """The same sum twice, of which the numbers change in between."""
    b = a + 0.0
    first = b.sum(axis=0)
    b[...] = b * 3.0
    return first + b.sum(axis=0)


def negative_zero(a):
    return a[:3] * 0.0 + nd.full((80,), 0.0), a[:3] * 0.0 + nd.full((80,), -0.0)


def constant_written_twice(a):
    mask = nd.ones((4,)) * 2.0
    mask[1:] = a[0, 1:4]
    return a[:, :4] * mask


def added_up(a):
    """scatter_add reads what it adds to."""
    total = a[:5] * 2.0
    CPU.scatter(SCATTER["scatter_add"], a[:2] + 0.0, nd.array([1, 2], dtype="int64"), total)
    return total


def constant_returned(a):
    return nd.ones((2,)), a + 1.0


def copied_twice(a):
    b = a * 2.0
    return b.copy(), b.copy()


def turned(a):
    b = a * 2.0
    return b.T.compact()


def summed_as_a_copy(a):
    """Sums along a row that is compact, and along one that is not, are made in another order."""
    b = a * 2.0
    c = b.T.compact()
    return c.sum(axis=1), c.sum()


def turned_and_summed(a):
    b = a * 2.0
    return b.T.compact().sum(axis=1)


def small_ones(a):
    """Products of small matrices, beside arrays a hundred times as large."""
    b, large = a[:8, :8] * 0.5, a + 1.0
    for _ in range(8):
        b, large = b @ b + a[8:16, :8] @ b, large @ (large.T @ large * 1e-3)
    return b, large.sum()


def image(a):
    """Images with their channels last, seen with their channels first."""
    return (a[:, :72].reshape((8, 4, 4, 36)) * 1.0).transpose((0, 3, 1, 2))


def layers(a):
    x = image(a)
    y = (x * 2.0 + a[0, :36].reshape((36, 1, 1)).broadcast_to((36, 4, 4))).relu()
    return nd.max_pool2d(y.transpose((0, 2, 3, 1)), 2, 2) * 0.5


def layers_and_a_sum(a):
    y = image(a) * 2.0
    return nd.max_pool2d(y.transpose((0, 2, 3, 1)), 2, 2), y.reshape((8, 36, 16)).sum(axis=2), y.sum(axis=1)


def layers_and_a_total(a):
    y = image(a) * 2.0
    return nd.max_pool2d(y.transpose((0, 2, 3, 1)), 2, 2), y.sum(axis=(1, 2, 3))


def layers_and_a_part(a):
    y = image(a) * 2.0
    return nd.max_pool2d(y.transpose((0, 2, 3, 1)), 2, 2), y[:, :, :2] * 3.0


def layers_and_later_channels(a):
    y = image(a) * 2.0
    return nd.max_pool2d(y.transpose((0, 2, 3, 1)), 2, 2), y[:, 3:] * 3.0


def layers_as_rows(a):
    """A row that goes on through two axes."""
    y = image(a) * 2.0
    return nd.max_pool2d(y.transpose((0, 2, 3, 1)), 2, 2), y.reshape((8, 36 * 16)) * 3.0


def two_orders(a):
    x = image(a)
    y = x * (a[:, 2:74].reshape((8, 36, 4, 4)) + 1.0)
    return nd.max_pool2d(y.transpose((0, 2, 3, 1)), 2, 2)


def written_in_two_parts(a):
    y = nd.zeros((8, 36, 4, 4))
    x = image(a)
    y[:4] = x[:4] * 2.0
    y[4:] = x[4:] * 3.0
    return nd.max_pool2d(y.transpose((0, 2, 3, 1)), 2, 2)


def returned_in_order(a):
    y = image(a) * 2.0
    return y, y + 1.0


MORE = {f.__name__: f for f in (copy_of_a_part, result_read_and_copied, written_after_the_copy_is_made, written_between,
                                negative_zero, constant_written_twice, added_up, constant_returned, copied_twice, turned,
                                summed_as_a_copy, turned_and_summed, small_ones,
                                layers, layers_and_a_sum, layers_and_a_total, layers_and_a_part, layers_as_rows,
                                layers_and_later_channels,
                                two_orders, written_in_two_parts, returned_in_order)}  # fmt: skip

#: What is wrong: the pass, and in its text what is replaced by what.
MUTANTS = {
    "a result is dropped": ("drop_dead", "wanted, numbers = set(plan.outputs)", "wanted, numbers = set()"),
    "what a call reads is dropped": ("drop_dead", "wanted |= plan.read(call)", "pass"),
    "writes to arrays from outside are dropped": ("drop_dead", "buffer < 0 or buffer in wanted", "buffer in wanted"),
    "checks are dropped": ("drop_dead", "call.verb in CHECKING or", ""),
    "a number from outside is taken for a constant": ("hoist_constants", "plan.read(call) <= plan.constants", "True"),
    "what is written twice is hoisted": ("hoist_constants", "writes[buffer] == 1", "writes[buffer] >= 1"),
    "a result is hoisted": ("hoist_constants", "and buffer not in plan.outputs", ""),
    "what is written twice is reused": ("reuse_results", "writes[b] == 1", "writes[b] >= 1"),
    "a result stands for another one": ("reuse_results", "plan.is_temporary(b) and", ""),
    "a copy is read where it came from, whoever writes there": ("reuse_results", "writes.get(source, 0) == done", "True or done"),
    "calls are the same whatever they read": ("reuse_results", "done.get(buffer, 0)) for", "0) for"),
    "-0.0 is 0.0": ("reuse_results", "else repr(arg)", "else arg"),
    "a part of a copy is the whole": ("copied", "!= call.args[1]._replace(buffer=0)", "and False"),
    "a source that is written later": ("drop_copies", "last_writes.get(a.buffer, -1) < i <", "-1 < i <"),
    "a result is copied into another one": ("drop_copies", "plan.is_temporary(a.buffer) and", ""),
    "a source that has become another result": ("drop_copies", "and a.buffer not in now and", "and"),
    "a part is copied into a result": ("drop_copies", "and copied(call) is not None", ""),
    "a result has another size": ("drop_copies", "and plan.sizes[a.buffer] == plan.sizes[out.buffer]", ""),
    "a copy of another dtype": ("drop_copies", "a.dtype is out.dtype and", ""),
    "a copy that two read": ("drop_copies", "and len(readers) == 1", ""),
    "a copy that is read as another view": ("drop_copies", "and all(v == out for v in plan.views_of(reader, out.buffer))", ""),
    "what reads it takes no views": ("drop_copies", 'reader.verb in ("unary", "binary") and', ""),
    "a result in another order": ("keep_layouts", "not plan.is_temporary(out.buffer) or", ""),
    "a reader that needs the order": ("keep_layouts", "plan.calls[j].verb not in KEEPING or", ""),
    "readers are not told": ("keep_layouts", "now[j] = dict(", "now[j] = {} and dict("),
    "inputs are lost": ("keep_layouts", "(*call.args[:-1], out._replace(", "(*(), out._replace("),
    "more than there is": ("_seen_in", "left[step][0] >= n", "True"),
    "a part from the middle": ("_seen_in", "and view.offset == 0", ""),
    "steps in any order": ("_seen_in", "left.pop(step)[1]", "left.pop(step) and step"),
    "an input that is read later": ("in_place", "and ends[a.buffer] == i", ""),
    "an input that is no temporary": ("in_place", "plan.is_temporary(a.buffer)", "a.buffer != out.buffer"),
    "another view of the input": ("in_place", "and a._replace(buffer=out.buffer) == out", ""),
    "a result that was written before": ("in_place", "begins[out.buffer] != i or", ""),
    "two views of one input": ("in_place", "and not any(b.buffer == a.buffer and b != a for b in inputs)", ""),
    "any verb in place": ("in_place", "call.verb not in ELEMENTWISE", 'call.verb in ("repeat", "fill", "step", "reduce")'),
    "places of others are free": ("pack_memory", "begins[other] <= during[1] and during[0] <= ends[other]", "False"),
    "a place is free before the last use": ("pack_memory", "during[0] <= ends[other]", "during[0] < ends[other]"),
    "a place is free until the first call but one": ("pack_memory", "begins[other] <= during[1]", "begins[other] < during[1]"),
    "small ones begin where large ones lie": ("pack_memory", "<= least], bottom)", "<= least], 0)"),
    "a gap is given back too early": ("_pack_in_order", "range(now, begins[buffer])", "range(now, begins[buffer] + 1)"),
}  # fmt: skip


def mutated(name):
    """The passes, one of which is wrong."""
    where, old, new = MUTANTS[name]
    text = inspect.getsource(getattr(passes, where))
    assert text.count(old) >= 1, f"{where} has no {old!r}"
    whole = inspect.getsource(passes).replace(text, text.replace(old, new))
    module = types.ModuleType("mutant")
    exec(compile(whole, "mutant", "exec"), vars(module))
    return module.PASSES


def fill_with_nan(array):
    handle = array._handle
    nd.NDArray.make((handle.nbytes,), None, array.device, handle, 0, "uint8")[...] = 255


def are_apart(plan):
    """Whether buffers that one call uses have different memory, which few kernels notice: they often read before they write."""
    begins, ends = plan.first_uses(), plan.last_uses()
    return not any(
        begins[b] <= ends[c] and begins[c] <= ends[b] and plan.origins[b] is plan.origins[c]
        and plan.places[b] < plan.places[c] + plan.sizes[c] and plan.places[c] < plan.places[b] + plan.sizes[b]
        for b, c in itertools.combinations(plan.places, 2)
    )  # fmt: skip


def is_right(function, a):
    """Whether a plan has the bits of the function, for other numbers and in memory full of something else."""
    try:
        held = []
        plan, built, _ = recorded(function, a)
        if not are_apart(plan):
            return False
        for seed in range(1, 4):
            x = array(64, 80, seed=seed)
            expected = function(x.copy())
            for views in built.inputs:
                views.point(x)
            for views in built.outputs.values():
                views.renew()
                for view in views.views[:1]:
                    fill_with_nan(view)
            built.run()
            expected = expected if isinstance(expected, tuple) else (expected,)
            if not all(same(got, e) for got, e in zip(built.results, expected, strict=True)):
                return False
            held += [like(result) for result in built.results]  # the next ones are elsewhere
            poison(built)
    except Exception:
        return False
    return True


def keeps_what_is_not_returned():
    """Whether a write to an array from outside is made, and the check of an index whose entry nobody reads."""
    kept, index = nd.zeros((64, 80)), nd.array([1], dtype="int64")

    def f(a):
        CPU.take(a, index, nd.zeros((1, 80)))
        kept[...] = a * 2.0
        return a + 1.0

    _, built, _ = recorded(f, array(64, 80))
    kept[...] = 0.0
    built.run()
    return bool(np.any(kept.numpy())) and any(verb == "take" for verb, _, _ in built.calls)


def all_are_right():
    return (
        all(is_right(f, array(64, 80)) for f in [*FUNCTIONS.values(), *MORE.values()]) and keeps_what_is_not_returned()
    )


def test_the_right_passes_are_right():
    assert all_are_right()


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    for key, function in mutated(name).items():
        monkeypatch.setitem(passes.PASSES, key, function)
    assert not all_are_right()
