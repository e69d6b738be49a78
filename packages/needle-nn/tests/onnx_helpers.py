"""What the tests of the ONNX export have in common: the same arrays through Needle and through onnxruntime."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import needle as ndl
from needle_nn.onnx.tracing import flat

sys.path.append(str(Path(__file__).parents[2] / "needle-core" / "tests"))  # for op_table

BATCHES = (1, 3, 8)
TOLERANCE = {"rtol": 1e-5, "atol": 5e-6}


def export(model, example, folder, **options):
    """A model as an ONNX file, and a function that runs it."""
    path = ndl.onnx.export(model, example, folder / "model.onnx", **options)
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_inputs()]

    def run(*arrays):
        return session.run(None, dict(zip(names, flat(arrays), strict=True)))

    return path, run


def nodes(path):
    """The types of the nodes in a file."""
    return [node.op_type for node in onnx.load(path).graph.node]


def tensors(args):
    """Arrays, in tuples, as Tensors."""
    return tuple(
        [tensors(a) if isinstance(a, tuple) else ndl.Tensor(a) if isinstance(a, np.ndarray) else a for a in args]
    )


def same(model, run, args, tolerance=TOLERANCE):
    """Assert that onnxruntime's results are Needle's: shapes, dtypes, values."""
    wanted = [y.numpy() for y in flat(model(*tensors(args)))]
    found = run(*args)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, a.dtype, b.shape, b.dtype)
        np.testing.assert_allclose(a, b, **tolerance)


def resized(a, n, axis, seed=0):
    """n examples drawn from those of an array."""
    if isinstance(a, tuple):
        return tuple([resized(part, n, axis, seed) for part in a])
    return np.take(a, np.random.default_rng(seed).integers(0, a.shape[axis], n), axis)


class Apply(ndl.nn.Module):
    """A function as a module."""

    def __init__(self, function, **tensors):
        super().__init__()
        self._function = function
        for name, value in tensors.items():
            setattr(self, name, value)

    def forward(self, *args):
        return self._function(self, *args)
