"""Pooling of images, NCHW -> NCHW, and sequences, NCL -> NCL.

>>> import needle as ndl
>>> x = ndl.Tensor([[[[1.0, 2.0], [3.0, 6.0]]]])
>>> MaxPool2d(2)(x).tolist(), AvgPool2d(2)(x).tolist(), AdaptiveAvgPool2d((2, 1))(x).tolist()
([[[[6.0]]]], [[[[3.0]]]], [[[[1.5], [4.5]]]])
"""

from typing import Any

from needle import ops
from needle.autograd import Tensor
from needle.typing import Pair
from needle_nn.nn.functional import images
from needle_nn.nn.module import Module, expect


class MaxPool2d(Module):
    """y = the largest of every window; stride is the window's size by default

    Parameters
    ----------
    kernel_size, stride, padding : an int, or (rows, columns)
    dilation : steps between the places of a window
    return_indices : the result is (y, where), as `MaxUnpool2d` takes it
    ceil_mode : a last window may reach beyond the image
    """

    op: Any = staticmethod(ops.max_pool2d)
    function: Any = staticmethod(images.max_pool2d)
    axes = "NCHW"
    dilation: Any = 1
    return_indices = False

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        if dilation != 1:
            self.dilation = dilation
        if return_indices:
            self.return_indices = True
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding
        self.ceil_mode = ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, *self.axes)
        more = self._more()
        if more or self.op is None:
            return self.function(x, self.kernel_size, self.stride, self.padding, **more)
        y = self.op(x.permute((0, 2, 3, 1)), self.kernel_size, self.stride, self.padding)
        return y.permute((0, 3, 1, 2))

    def _more(self):
        """The arguments that only the function has; none where the op does it all."""
        names = [name for name in ("ceil_mode", "return_indices") if getattr(self, name)]
        return {**dict.fromkeys(names, True), **({"dilation": self.dilation} if self.dilation != 1 else {})}

    def _settings(self):
        return super()._settings().replace(", ceil_mode=False", "")


class AvgPool2d(MaxPool2d):
    """y = the average of every window, padding counted as zeros; stride is the window's size by default

    Parameters
    ----------
    kernel_size, stride, padding : an int, or (rows, columns)
    ceil_mode : a last window may reach beyond the image
    count_include_pad : whether padding counts
    """

    op: Any = staticmethod(ops.avg_pool2d)
    function: Any = staticmethod(images.avg_pool2d)

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode=ceil_mode)
        self.count_include_pad = count_include_pad

    def _more(self):
        return super()._more() | ({} if self.count_include_pad else {"count_include_pad": False})

    def _settings(self):
        return super()._settings().replace(", count_include_pad=True", "")


class MaxPool1d(MaxPool2d):
    """`MaxPool2d` of sequences"""

    function = staticmethod(images.max_pool1d)
    op = None
    axes = "NCL"


class AvgPool1d(AvgPool2d):
    """`AvgPool2d` of sequences"""

    function = staticmethod(images.avg_pool1d)
    op = None
    axes = "NCL"


class AdaptiveAvgPool2d(Module):
    """y[i, j] = the average of rows floor(i H / OH) to ceil((i + 1) H / OH), and columns likewise; None: as many as there are"""

    function = staticmethod(images.adaptive_avg_pool2d)
    axes = "NCHW"

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        expect(self, x, *self.axes)
        return self.function(x, self.output_size)


class AdaptiveAvgPool1d(AdaptiveAvgPool2d):
    """y[i] = the average of places floor(i L / OL) to ceil((i + 1) L / OL)"""

    function = staticmethod(images.adaptive_avg_pool1d)
    axes = "NCL"


class AdaptiveMaxPool2d(AdaptiveAvgPool2d):
    """y[i, j] = the largest of rows floor(i H / OH) to ceil((i + 1) H / OH), and columns likewise"""

    function = staticmethod(images.adaptive_max_pool2d)


class AdaptiveMaxPool1d(AdaptiveAvgPool1d):
    """y[i] = the largest of places floor(i L / OL) to ceil((i + 1) L / OL)"""

    function = staticmethod(images.adaptive_max_pool1d)


class MaxUnpool2d(Module):
    """Every element at its place in a larger image, zeros elsewhere: (x, where) of `MaxPool2d(return_indices=True)` back

    Parameters
    ----------
    kernel_size, stride, padding : those of the pooling
    """

    function: Any = staticmethod(images.max_unpool2d)
    axes = "NCHW"

    def __init__(self, kernel_size: Pair, stride: Pair | None = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding

    def forward(self, x: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        expect(self, x, *self.axes)
        return self.function(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(MaxUnpool2d):
    """`MaxUnpool2d` of sequences"""

    function = staticmethod(images.max_unpool1d)
    axes = "NCL"
