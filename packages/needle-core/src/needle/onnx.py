"""Re-export of needle_nn.onnx: models as ONNX files."""

from needle._sister import sister

with sister("needle.onnx", "needle-nn"):
    from needle_nn.onnx import *
