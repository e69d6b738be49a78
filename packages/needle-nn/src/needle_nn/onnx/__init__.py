"""Models as ONNX files, for onnxruntime and other programs. `export` needs the package onnx: `pip install needle-nn[onnx]`."""

# The modules, in the order in which an export uses them:
#   examples    the arguments and their batch       converting  one node after the other, by the converters
#   preserving  the model stays as it is            fusing      what is several ops here and one node there
#   tracing     a run as a list of nodes            graph       the ONNX graph while it is made
#   sizes       numbers that follow the batch       simplifying what the converters left
#   matching    several runs as one list            writing     protocol buffers, the check, the file
# The table of converters is `registry`, filled by `converters`; `reasons` says why an op has none.

from needle_nn.onnx.errors import ExportError
from needle_nn.onnx.export import export
from needle_nn.onnx.registry import register

__all__ = ["ExportError", "export", "register"]
