"""The models exported to ONNX and run by ONNX Runtime, with as many threads as the process may use."""

import os
import tempfile
from collections.abc import Callable
from typing import Any

import needle as ndl
from benchmarks.models_needle import build
from benchmarks.workloads import batch_of


def infer(name: str, batch: int = 1) -> Callable[[], Any]:
    """A function that computes the logits of a batch."""
    import onnxruntime

    x = batch_of(name, batch)[0]
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.onnx")
        ndl.onnx.export(build(name).eval(), ndl.Tensor(x, requires_grad=False), file, dynamic_batch=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: x}
    return lambda: session.run(None, given)[0]
