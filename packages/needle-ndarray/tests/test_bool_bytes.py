"""Bools whose bytes are not 0 or 1, as files and `uint8.view(bool)` have them: True on every device, in every op."""

import pickle

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.testing.oracle import assert_same
from needle_ndarray.testing.tables import each

BYTES = np.array([[0, 1, 2, 128], [255, 0, 64, 3]], np.uint8)
TRUTH = BYTES != 0


def odd():
    return BYTES.copy().view(np.bool_)


def unpickled(device):
    function, arguments, *_ = nd.array(TRUTH, "bool", device).__reduce__()
    return pickle.loads(pickle.dumps(function))(odd(), *arguments[1:])


def written(device, key, values):
    a = nd.zeros((2, 4), "bool", device)
    a[key] = values
    return a


#: Every way in.
WAYS = {
    "array": lambda d: nd.array(odd(), "bool", d),
    "array, its own dtype": lambda d: nd.array(odd(), None, d),
    "NDArray": lambda d: nd.NDArray(odd(), device=d),
    "asarray": lambda d: nd.asarray(odd(), device=d),
    "asarray, shared": lambda d: nd.asarray(odd()).to(d),
    "from_numpy": lambda d: nd.from_numpy(odd(), device=d),
    "from_numpy, strided": lambda d: nd.from_numpy(np.repeat(odd(), 2, axis=1)[:, ::2], device=d),
    "from_numpy, reversed": lambda d: nd.from_numpy(odd()[::-1, ::-1], device=d)[::-1, ::-1],
    "from_dlpack": lambda d: nd.from_dlpack(odd(), device=d),
    "from_dlpack, copied": lambda d: nd.from_dlpack(odd(), device=d, copy=True),
    "frombuffer": lambda d: nd.array(np.frombuffer(BYTES.tobytes(), np.bool_).reshape(2, 4), "bool", d),
    "fortran": lambda d: nd.array(np.asfortranarray(odd()), "bool", d),
    "unpickled": unpickled,
    "assigned": lambda d: written(d, ..., odd()),
    "assigned to a slice": lambda d: written(d, np.s_[:, ::1], odd()),
    "assigned by index": lambda d: written(d, [0, 1], odd()),
    "of int32": lambda d: nd.array(odd(), "int32", d).astype("bool"),
    "of float32": lambda d: nd.array(odd(), "float32", d) == 1,
    "an operand": lambda d: nd.zeros((2, 4), "bool", d) | odd(),
}

#: What would tell one true byte from another.
TELLING = {
    "bytes": lambda a: a.astype("uint8"),
    "sum": lambda a: a.sum(0),
    "equal": lambda a: a == (a.astype("int32") > 0),
    "and": lambda a: a & nd.ones(a.shape, "bool", a.device),
    "add": lambda a: a + a,
    "multiply": lambda a: a * nd.ones(a.shape, "bool", a.device),
    "invert": lambda a: ~a,
    "xor": lambda a: a ^ True,
    "max": lambda a: a.astype("int64").max() + a.max().astype("int64"),
    "argmax": lambda a: a.argmax(1),
    "cumsum": lambda a: a.cumsum(1),
    "float": lambda a: a * 1.0,
    "where": lambda a: nd.where(a, 1.5, 2.5),
    "index": lambda a: nd.arange(8, device=a.device).reshape(2, 4)[a],
    "matmul": lambda a: a @ a.T,
    "exp": lambda a: a.exp(),
    "less": lambda a: a < nd.ones(a.shape, "bool", a.device),
}


@each("telling", TELLING)
@pytest.mark.parametrize("way", WAYS)
def test_odd_bytes_are_true(way, telling, device):
    a = WAYS[way](device)
    assert a.dtype == "bool" and a.device == device
    assert_same(a.numpy().view(np.uint8), TRUTH.view(np.uint8))
    expected = TELLING[telling](nd.array(TRUTH, "bool", device))
    assert_same(TELLING[telling](a).numpy(), expected.numpy())


def test_masks_with_odd_bytes(device):
    x = nd.arange(8, device=device).reshape(2, 4)
    assert x[odd()].tolist() == np.arange(8).reshape(2, 4)[TRUTH].tolist()
    assert nd.where(odd(), x, -1).tolist() == np.where(TRUTH, np.arange(8).reshape(2, 4), -1).tolist()


def test_good_bools_are_still_shared():
    x = TRUTH.copy()
    a = nd.from_numpy(x)
    x[0, 0] = True
    assert a[0, 0].item() is True and np.shares_memory(np.asarray(a), x)
    with pytest.raises(BufferError, match="bool with bytes other than 0 and 1, and copy=False"):
        nd.from_dlpack(odd(), copy=False)
    given = odd()
    a = nd.from_numpy(given)
    assert not np.shares_memory(np.asarray(a), given) and given.view(np.uint8).max() == 255
