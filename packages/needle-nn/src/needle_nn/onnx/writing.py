"""An ONNX graph as a file: protocol buffers, checked by onnx, whole or not at all."""

from pathlib import Path
from typing import Any

import numpy as np

from needle_nn import __version__
from needle_nn.files import replacing
from needle_nn.onnx.errors import ExportError
from needle_nn.onnx.graph import DTYPES, Graph, Operand

OPSET = 17  # the first with LayerNormalization; runtimes since 2022 know it
IR_VERSION = 8  # what came with it
MOST_BYTES = 2**31 - 2**20  # protocol buffers hold 2 GiB


def need_onnx() -> Any:
    """The package onnx; where it is missing, how to get it."""
    try:
        import onnx
        import onnx.checker
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        message = "needle.onnx needs the package onnx, which is not installed: pip install 'needle-nn[onnx]'"
        raise ModuleNotFoundError(message, name="onnx") from None
    return onnx


def to_model(graph: Graph, name: str) -> Any:
    """The graph as onnx's ModelProto, checked."""
    onnx = need_onnx()
    size = sum([value.nbytes for value in graph.initializers.values()])
    if size > MOST_BYTES:
        raise ExportError(f"the tensors of the model take {size / 2**30:.1f} GiB, but an ONNX file holds 2 GiB")
    helper = onnx.helper
    nodes = []
    for i, node in enumerate(graph.nodes):
        while node.inputs and not node.inputs[-1]:
            node.inputs.pop()
        nodes.append(helper.make_node(node.type, node.inputs, node.outputs, f"{node.type}_{i}", **node.attributes))
    made = helper.make_model(
        helper.make_graph(
            nodes,
            name,
            [_info(onnx, operand) for operand in graph.inputs],
            [_info(onnx, operand) for operand in graph.outputs],
            [_tensor(onnx, key, value, graph.dtypes[key]) for key, value in graph.initializers.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="needle",
        producer_version=__version__,
    )
    try:
        onnx.checker.check_model(made, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"onnx refuses the graph: {' '.join(str(error).split())}") from error
    return made


def write(model: Any, path: Any) -> Path:
    """Write a ModelProto; what is there under the name is replaced at the end."""
    target = Path(path)
    with replacing(target) as unfinished:
        unfinished.write_bytes(model.SerializeToString())
    return target


def _info(onnx: Any, operand: Operand) -> Any:
    shape = [n if isinstance(n, int) else str(n) for n in operand.shape]
    return onnx.helper.make_tensor_value_info(operand.name, DTYPES[operand.dtype], shape)


def _tensor(onnx: Any, name: str, value: np.ndarray, dtype: str) -> Any:
    data = value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
    return onnx.helper.make_tensor(name, DTYPES[dtype], list(value.shape), data, raw=True)
