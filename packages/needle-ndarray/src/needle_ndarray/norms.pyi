"""Types of the compiled module."""

from needle_ndarray.ndarray import NDArray

def layer_norm(
    x: NDArray, weight: NDArray | None = None, bias: NDArray | None = None, eps: float = 1e-5
) -> NDArray: ...
def layer_norm_grad(
    grad: NDArray, x: NDArray, weight: NDArray | None = None, eps: float = 1e-5
) -> tuple[NDArray, NDArray, NDArray]: ...
def batch_norm(
    x: NDArray, weight: NDArray | None = None, bias: NDArray | None = None, eps: float = 1e-5
) -> tuple[NDArray, NDArray, NDArray]: ...
def batch_norm_grad(
    grad: NDArray, x: NDArray, mean: NDArray, var: NDArray, weight: NDArray | None = None, eps: float = 1e-5
) -> tuple[NDArray, NDArray, NDArray]: ...
