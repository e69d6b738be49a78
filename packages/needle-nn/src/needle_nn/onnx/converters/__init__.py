"""The converters of Needle's ops: importing this fills the table of `needle_nn.onnx.registry`."""

from needle_nn.onnx.converters import (
    elementwise,
    functions,
    indexing,
    networks,
    products,
    recurrent,
    reductions,
    shapes,
)

__all__ = ["elementwise", "functions", "indexing", "networks", "products", "recurrent", "reductions", "shapes"]
