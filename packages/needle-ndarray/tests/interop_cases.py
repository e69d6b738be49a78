"""Arrays and views that the tests of interop share with NumPy."""

import numpy as np

import needle_ndarray as nd

DTYPES = ["bool", "uint8", "int32", "int64", "float32", "float64"]

#: Views of an array of shape (4, 6): the same expression for NumPy arrays and NDArrays.
VIEWS = {
    "compact": lambda x: x,
    "transposed": lambda x: x.T,
    "sliced": lambda x: x[1:4:2, 1:5],
    "negative": lambda x: x[::-1, ::-2],
    "row": lambda x: x[2],
    "column": lambda x: x[:, 3],
    "new axis": lambda x: x[:, None, 2:],
    "0-d": lambda x: x[1, 2],
    "zero-size": lambda x: x[2:2],
}


def host(dtype: str = "float32", shape: tuple[int, ...] = (4, 6)) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) % 7).astype(dtype)


def same(a: nd.NDArray, expected: np.ndarray) -> None:
    assert isinstance(a, nd.NDArray)
    assert a.dtype == expected.dtype and a.shape == expected.shape
    np.testing.assert_array_equal(a.numpy(), expected)
