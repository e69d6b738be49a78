"""Pooling of images, NCHW -> NCHW.

>>> import needle as ndl
>>> x = ndl.Tensor([[[[1.0, 2.0], [3.0, 6.0]]]])
>>> MaxPool2d(2)(x).tolist(), AvgPool2d(2)(x).tolist(), AdaptiveAvgPool2d((2, 1))(x).tolist()
([[[[6.0]]]], [[[[3.0]]]], [[[[1.5], [4.5]]]])
"""

import numpy as np

from needle import ops
from needle.autograd import Tensor
from needle_nn.nn.conv import pair
from needle_nn.nn.module import Module, expect


class MaxPool2d(Module):
    """y = the largest of every window; stride is the window's size by default"""

    op = staticmethod(ops.max_pool2d)

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding

    def forward(self, x):
        expect(self, x, "N", "C", "H", "W")
        y = self.op(x.permute((0, 2, 3, 1)), self.kernel_size, self.stride, self.padding)
        return y.permute((0, 3, 1, 2))


class AvgPool2d(MaxPool2d):
    """y = the average of every window, padding counted as zeros; stride is the window's size by default"""

    op = staticmethod(ops.avg_pool2d)


class AdaptiveAvgPool2d(Module):
    """y[i, j] = the average of rows floor(i H / OH) to ceil((i + 1) H / OH), and columns likewise: y = A x B^T"""

    def __init__(self, output_size):
        super().__init__()
        self.output_size = output_size

    def forward(self, x):
        expect(self, x, "N", "C", "H", "W")
        rows, columns = (
            Tensor(_averages(n, m), device=x.device, dtype=x.dtype, requires_grad=False)
            for n, m in zip(x.shape[2:], pair(self.output_size), strict=True)
        )
        return rows @ (x @ columns.transpose())  # (OH, H) @ (N, C, H, W) @ (W, OW)


def _averages(n: int, m: int) -> np.ndarray:
    """The (m, n) matrix that averages n numbers in m windows."""
    i, j = np.arange(m)[:, None], np.arange(n)
    inside = (j >= i * n // m) & (j < -(-(i + 1) * n // m))
    return inside / inside.sum(axis=1, keepdims=True)
