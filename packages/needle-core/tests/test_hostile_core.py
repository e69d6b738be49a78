"""No call of the engine with an argument that lies may end the process: each row runs in a process of its own."""

# ruff: noqa: E501  (several rows of a table on a line)
import re
import subprocess
import sys

import pytest

PRELUDE = """
import gc, itertools
import numpy as np
import needle as ndl
import needle_ndarray as nd
from needle import autograd
from needle_ndarray.testing.hostile import SCALARS, Twice, attempt
x = ndl.Tensor([1.0, 2.0]); y = x * x

class Bad(ndl.Tensor):
    def __add__(self, other): return 12345
    __radd__ = detach = __add__

class Id(ndl.TensorOp):
    def compute(self, a): return a
    def gradient(self, g, node): return Bad.make_const(g.realize_cached_data())
"""

#: name: (snippet, how its last line of errors begins, "" where it must go well)
CASES = {
    "outputs that differ the second time": (
        "class Outputs:\n n = 0\n def __len__(self): return 1\n def __iter__(self):\n  self.n += 1\n"
        "  return iter([y] if self.n == 1 else [12345678901234567890])\n"
        "assert autograd.gradients(Outputs(), [x])[0].tolist() == [2, 4]",
        "",
    ),
    "outputs that are no tensors": ("autograd.gradients([5], [x])", "TypeError"),
    "outputs of None": ("autograd.gradients([None], [x])", "(TypeError|AttributeError)"),
    "out_grads of another length": ("autograd.gradients([y], [x], [])", "ValueError: gradients: 0 out_grads for 1 outputs"),
    "gradients whose + gives an int": (
        "(Id()(x) + Id()(x)).sum().backward()\nassert isinstance(x.grad, ndl.Tensor) and x.grad.tolist() == [2, 2]\n"
        "autograd.with_gradients([x])",
        "",
    ),
    "gradients whose + gives an int, added to what is there": (
        "x.grad = Bad.make_const(nd.ones(2))\n(x * 2.0).sum().backward(accumulate=True)\nassert x.grad.tolist() == [3, 3]",
        "",
    ),
    "entries of a tuple whose + gives an int": (
        "class Two(ndl.TensorTupleOp):\n def compute(self, a): return a, a\n def gradient(self, g, node): return g[0]\n"
        "t = Two()(x); (Id()(t[0]) + Id()(t[0]) + t[1]).sum().backward(); assert x.grad.tolist() == [2, 2]",
        "",
    ),
    "a tuple that lies about its length": (
        "class Long(ndl.TensorTuple):\n def __len__(self): return 1 << 60\n"
        "t = Long.make_const([nd.ones(2)]); t[1 << 50]",
        "IndexError: entry",
    ),
    "an index of a tuple that is none": ("ndl.TensorTuple.make_const([nd.ones(2)])[Twice('a', 'b')]", "TypeError"),
    "initialised while it is initialised": (
        "t = ndl.Tensor.__new__(ndl.Tensor)\nclass Evil:\n def __array__(self, dtype=None, copy=None):\n"
        "  t.__init__(np.ones(4)); return np.ones(2)\nt.__init__(Evil())",
        "TypeError: Tensor.__init__: the tensor exists already",
    ),
    "sorted again while gradients are prepared": (
        "class Again:\n def __init__(self): self.me = self\n def __del__(self): autograd.find_topo_sort([y, wide])\n"
        "wide = y\nfor _ in range(50): wide = wide + y\ngc.set_threshold(1)\n"
        "for _ in range(200):\n Again()\n autograd.gradients([y, wide], [x]); y.sum().backward()\n"
        "assert x.grad.tolist() == [2, 4]",
        "",
    ),
    "every NumPy scalar": (
        "for s in SCALARS:\n"
        " for f in ('x + s', 's + x', 'x - s', 's - x', 'x * s', 's * x', 'x / s', 's / x', 'x ** s', 'x < s', 'ndl.maximum(x, s)',\n"
        "           'ndl.where(x > 0, x, s)', 'ndl.clip(x, s, s)', 'ndl.Tensor(s)', 'ndl.ops.add_scalar(x, s)', 'ndl.nn.LeakyReLU(s)(x)'):\n"
        "  attempt(eval, f)\n"
        "for s in SCALARS:\n"
        " if isinstance(s, (np.floating, np.integer)) and not isinstance(s, np.timedelta64):\n"
        "  assert (x * s).tolist() == [1, 2] and (x * s).dtype == 'float32', s",
        "",
    ),
    **{
        f"endless: {code}": (f"e = itertools.count(); r = itertools.repeat(x); {code}", "(TypeError|ValueError: .*more than|ValueError: .*33)")
        for code in (
            "ndl.stack(r)", "ndl.ops.concatenate(r)", "ndl.transpose(x, e)", "ndl.permute(x, e)", "ndl.ops.pad(x, itertools.repeat((1, 1)))",
            "ndl.ops.pad(x, (e,))", "ndl.ops.dilate(x, e, 1)", "autograd.gradients(r, [x])", "autograd.gradients([y], r)",
            "autograd.gradients([y], [x], r)", "autograd.find_topo_sort(r)", "autograd.sum_node_list(r)", "autograd.with_gradients(r)",
            "autograd.topo_sort_dfs(y, r, [])", "ndl.TensorTuple.make_const(itertools.repeat(nd.ones(2)))", "ndl.Tensor.make_from_op(ndl.ops.EWiseAdd(), r)",
            "ndl.reshape(x, e)", "ndl.broadcast_to(x, e)", "ndl.summation(x, e)", "ndl.init.rand(e)", "ndl.ops.flip(x, e)",
            "ndl.TensorTuple.make_const([nd.ones(2)]).cached_data = itertools.repeat(nd.ones(2))",
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_hostile_core(name):
    code, expected = CASES[name]
    command = [sys.executable, "-X", "faulthandler", "-c", PRELUDE + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), f"died with {done.returncode}: {done.stderr[:500]}"
    last = (done.stderr.strip().splitlines() or [""])[-1] if done.returncode else ""
    assert re.match(expected or "$", last), f"{last!r}, expected {expected!r}"
