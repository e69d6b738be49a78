"""Products: matmul with a bias, and over tiles."""

from typing import Any

from needle_ndarray.backend import BINARY, Backend
from needle_ndarray.ndarray import NDArray

WIDENED = 1 << 22  # elements of a weight that are float32 at a time: 16 MB


def linear(backend: Backend, x: NDArray, weight: NDArray, bias: NDArray, out: NDArray) -> None:
    backend.matmul(x, weight, out)
    backend.binary(BINARY["add"], out, bias.broadcast_to(out.shape), out)


def matmul_weight(backend: Backend, a: NDArray, weight: NDArray, scale: NDArray | None, out: NDArray) -> None:
    step = max(1, WIDENED // max(1, weight.shape[0]))
    for first in range(0, weight.shape[1], step):
        block = slice(first, first + step)
        part = weight[:, block].astype("float32")
        if weight.dtype == "uint8":
            part = part - 128.0
        backend.matmul(a, part if scale is None else part * scale[block], out[:, block])


def matmul_tiled(backend: Backend, a: Any, b: Any, out: Any, m: int, n: int, p: int) -> None:
    t = backend.tile_size

    def tiles(handle: Any, rows: int, columns: int) -> NDArray:
        return NDArray.make((rows // t, columns // t, t, t), device=backend.device, handle=handle)

    left, right = tiles(a, m, n).permute((0, 2, 1, 3)), tiles(b, n, p).permute((0, 2, 1, 3))
    product = left.reshape((m, n)) @ right.reshape((n, p))
    backend.copy(product.reshape((m // t, t, p // t, t)).permute((0, 2, 1, 3)), tiles(out, m, p))
    out.mark_written()
