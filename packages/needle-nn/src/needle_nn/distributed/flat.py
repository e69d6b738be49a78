"""Arrays of several parameters side by side in one, for each dtype: what ranks exchange."""

from collections.abc import Sequence
from typing import Any

import needle_ndarray as nd
from needle_ndarray import NDArray
from needle_nn.distributed.communicator import Communicator


class Flat:
    """Where the arrays of some Tensors lie in one flat array of their dtype, whose length `multiple` divides.

    Flat arrays are on the host, unless all Tensors are on one device that `world` exchanges directly.

    >>> import needle as ndl
    >>> flat = Flat([ndl.zeros(2, 2), ndl.zeros(3)], multiple=4)
    >>> (packed,) = flat.pack([nd.ones((2, 2)), None])
    >>> packed.tolist(), [array.shape for array in flat.unpack([packed])]
    ([1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0], [(2, 2), (3,)])
    """

    def __init__(self, tensors: Sequence[Any], multiple: int = 1, world: Communicator | None = None) -> None:
        self.shapes = [tuple(t.shape) for t in tensors]
        self.sizes = [t.size for t in tensors]
        devices = {t.device for t in tensors}
        there = len(devices) == 1 and world is not None and world.direct(next(iter(devices)))
        self.device = devices.pop() if there else nd.cpu()
        self.dtypes = list(dict.fromkeys(t.dtype for t in tensors))
        self.places: list[tuple[int, int]] = []  # (which flat array, where in it)
        self.lengths = [0] * len(self.dtypes)
        for t in tensors:
            which = self.dtypes.index(t.dtype)
            self.places.append((which, self.lengths[which]))
            self.lengths[which] += t.size
        self.lengths = [-(-length // multiple) * multiple for length in self.lengths]

    def pack(self, arrays: Sequence[NDArray | None]) -> list[NDArray]:
        """A flat array for each dtype; what is None, and what fills up the end, is 0."""
        packed = [nd.full((n,), 0, dtype, self.device) for n, dtype in zip(self.lengths, self.dtypes, strict=True)]
        for array, (which, start), size in zip(arrays, self.places, self.sizes, strict=True):
            if array is not None and size:
                packed[which][start : start + size] = array.compact().reshape(size).to(self.device)
        return packed

    def unpack(self, packed: Sequence[NDArray]) -> list[NDArray]:
        """Views of flat arrays, in the shapes of the Tensors."""
        return [
            packed[which][start : start + size].reshape(shape)
            for (which, start), size, shape in zip(self.places, self.sizes, self.shapes, strict=True)
        ]
