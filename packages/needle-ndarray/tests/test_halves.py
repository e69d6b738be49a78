"""float16 and bfloat16 beside the contract: every float16 against NumPy, promotion, printing, sharing, indexing, refusals."""

import copy
import pickle

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.backend import BINARY, UNARY
from needle_ndarray.halves import bfloat16_words
from needle_ndarray.testing import each

HALVES = ["float16", "bfloat16"]
ALL = np.arange(1 << 16, dtype=np.uint16)  # every word


def test_every_float16_is_numpys(device):
    """Widened and rounded back to the same word; every float32 between two halves to NumPy's choice is in the contract suite."""
    a, x = nd.from_words(ALL, "float16", device), ALL.view(np.float16)
    nan = np.isnan(x)
    wide = a.astype("float32")
    assert np.array_equal(wide.numpy(), x.astype(np.float32), equal_nan=True)
    assert np.array_equal(np.signbit(wide.numpy())[~nan], np.signbit(x)[~nan])
    back = nd.words(wide.astype("float16"))
    assert np.array_equal(back[~nan], ALL[~nan]) and np.isnan(back.view(np.float16)[nan]).all()
    assert np.array_equal(a.numpy().view(np.uint16), ALL)


def test_every_bfloat16_is_the_upper_half_of_a_float32(device):
    a = nd.from_words(ALL, "bfloat16", device)
    x = (ALL.astype(np.uint32) << 16).view(np.float32)
    nan = np.isnan(x)
    assert a.numpy().dtype == np.float32 and np.array_equal(a.numpy(), x, equal_nan=True)
    back = nd.words(a.astype("float32").astype("bfloat16"))
    assert np.array_equal(back[~nan], ALL[~nan]) and (back[nan] & 0x7FFF > 0x7F80).all()


@pytest.mark.parity
@each("given", ["float32", "float64", "float16"])
def test_bfloat16_is_pytorchs(given):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << 32, 200_000).astype(np.uint32).view(np.float32)
    if given == "float64":
        x = x[np.isfinite(x)].astype(given)  # exact in float32: PyTorch rounds others twice
    elif given == "float16":
        x = ALL.view(np.float16)
    expected = torch.from_numpy(x.copy()).to(torch.bfloat16)
    got = nd.array(x, "bfloat16")
    finite = ~np.isnan(x)
    words = expected.view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(nd.words(got)[finite], words[finite])
    assert np.array_equal(np.isnan(got.numpy()), ~finite)
    assert np.array_equal(bfloat16_words(x)[finite], words[finite])
    shared = torch.from_dlpack(got)
    assert shared.dtype == torch.bfloat16 and np.array_equal(shared.float().numpy(), got.numpy(), equal_nan=True)
    assert nd.from_dlpack(expected).dtype == "bfloat16"


def test_float16_by_dlpack_and_buffer(host_device):
    x = np.array([[1.5, -2.0], [65504.0, 2.0**-24]], np.float16)
    a = nd.from_dlpack(x) if host_device == nd.cpu() else nd.array(x, "float16", host_device)
    assert a.dtype == "float16" and np.from_dlpack(a).dtype == np.float16
    assert memoryview(a).format == "e" and np.shares_memory(np.asarray(a), np.asarray(a.T))
    np.asarray(a)[0, 0] = 7
    assert a[0, 0].item() == 7.0


def test_bfloat16_has_no_buffer(host_device):
    a = nd.array([1.0, 2.0], "bfloat16", host_device)
    with pytest.raises(BufferError, match="bfloat16 has no format in the buffer protocol"):
        memoryview(a)
    assert np.asarray(a).dtype == np.float32  # a copy
    with pytest.raises(ValueError, match="bfloat16"):
        np.array(a, copy=False)


PROMOTED = [
    ("float16", "bfloat16", "float32"), ("float16", "float32", "float32"), ("bfloat16", "float32", "float32"),
    ("float16", "float64", "float64"), ("bfloat16", "float64", "float64"), ("bfloat16", "bool", "bfloat16"),
    ("float16", "uint8", "float16"), ("bfloat16", "uint8", "bfloat16"), ("bfloat16", "int32", "float64"),
    ("float16", "int32", "float64"), ("bfloat16", "int64", "float64"), ("float16", "float16", "float16"),
]  # fmt: skip


@each("a, b, expected", PROMOTED)
def test_half_promotion(a, b, expected, device):
    assert nd.promote_types(nd.dtype(a), nd.dtype(b)) == nd.result_type(b, a) == expected
    x, y = nd.ones(2, a, device), nd.ones(2, b, device)
    assert (x + y).dtype == (y * x).dtype == nd.where(nd.array([True, False], "bool", device), x, y).dtype == expected
    assert nd.concatenate([x, y]).dtype == expected
    assert nd.result_type(a, 1.5) == a and nd.can_cast(b, a) == (expected == a)
    if "bfloat16" not in (a, b):
        assert np.promote_types(a, b) == expected


@pytest.mark.parametrize("dtype", HALVES)
def test_half_creation_and_printing(dtype, device):
    a = nd.full((2, 2), 1.5, dtype, device)
    assert a.dtype == dtype and a.itemsize == 2 and a.nbytes == 8 and nd.zeros(3, dtype, device).tolist() == [0, 0, 0]
    assert f"dtype={dtype}" in repr(a) and "1.5" in repr(a) and str(a) and f"{a[0, 0]:.2f}" == "1.50"
    assert nd.finfo(dtype).bits == 16 and nd.isdtype(dtype, "real floating")
    assert nd.random.uniform(5, dtype=dtype, device=device).dtype == dtype
    assert (
        nd.arange(4, dtype=dtype, device=device).tolist() == [0, 1, 2, 3]
        and nd.eye(2, dtype=dtype, device=device)[0, 0].item() == 1
    )
    assert a.dtype != np.float32 and nd.dtype(dtype) is a.dtype
    for made in (copy.deepcopy(a), pickle.loads(pickle.dumps(a)), a.to("cpu").to(device)):
        assert made.dtype == dtype and np.array_equal(nd.words(made), nd.words(a))


@pytest.mark.parametrize("dtype", HALVES)
def test_half_indexing(dtype, device):
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    a = nd.array(x, dtype, device)
    y = x.copy()
    a[1], y[1] = 0.5, 0.5
    a[[0, 2], 3], y[[0, 2], 3] = -1.0, -1.0
    a[a > 20.0] = 9.0
    y[y > 20.0] = 9.0
    a[3, ::-2], y[3, ::-2] = nd.ones(3, device=device), 1.0
    for key in (np.s_[1:3, ::-1], np.s_[[3, 0], 1:], np.s_[..., None], 2, np.s_[:, [5, 5, 0]]):
        assert a[key].dtype == dtype and np.array_equal(a[key].numpy().astype("float32"), y[key])
    assert np.array_equal(nd.take(a, [3, 1], axis=1).numpy(), y[:, [3, 1]])
    assert np.array_equal(nd.concatenate([a, a], 1).numpy(), np.concatenate([y, y], 1))
    assert np.array_equal(nd.stack([a, a])[1].numpy(), y) and np.array_equal(nd.sort(a).numpy(), np.sort(y))
    assert nd.unique_values(a).dtype == dtype
    nd.add_at(a, [0, 0], 1.0)
    assert np.array_equal(a[0].numpy(), y[0] + 2)
    assert [i.tolist() for i in nd.nonzero(a)] == [i.tolist() for i in np.nonzero(a.numpy())]


def test_sums_are_those_of_float32(device):
    """4096 ones and more: a sum in float16 would stand still at 2048, one in bfloat16 at 256."""
    for dtype in HALVES:
        assert nd.ones(4096, dtype, device).sum().item() == 4096.0
        assert nd.ones(1 << 17, dtype, device).mean().item() == 1.0
        assert nd.full(3000, 40.0, dtype, device).var().item() == 0.0
    assert nd.ones((2, 5000), "bfloat16", device).cumsum(1)[0, -1].item() == 4992.0  # rounded, once


def test_fused_functions_give_float32(device):
    x = nd.ones((2, 4), "bfloat16", device)
    assert nd.layer_norm(x).dtype == nd.attention(x, x, x).dtype == "float32"
    assert x.softmax().dtype == x.logsumexp().dtype == "bfloat16"


REFUSED = [
    (lambda a: a & a, "bitwise_and: not defined for"),
    (lambda a: nd.sgd_step([a], [a], None, lr=0.1), "parameter 0 is .*float16, expected float32 or float64"),
    (lambda a: nd.matmul_weight(a, a), "expected float32 @ float16, bfloat16 or uint8"),
    (lambda a: nd.from_words(np.zeros(3, np.uint8), a.dtype), "words of uint8, but .*float16 has 2 bytes"),
]


@pytest.mark.parametrize("dtype", HALVES)
@each("call, message", REFUSED)
def test_half_refusals(call, message, dtype, device):
    with pytest.raises(TypeError, match=message):
        call(nd.ones((3, 3), dtype, device))


VERBS = [
    lambda b, a, o: b.unary(UNARY["exp"], a, o),
    lambda b, a, o: b.binary(BINARY["add"], a, a, o),
    lambda b, a, o: b.matmul(a, a, o),
    lambda b, a, o: b.where(a > 0, a, a, o),
    lambda b, a, o: b.scan(nd.backend.SCAN["cumsum"], a, o, 0),
    lambda b, a, o: b.reduce(nd.backend.REDUCE["sum"], a, o, (0,)),
    lambda b, a, o: b.random(nd.backend.RANDOM["uniform"], o, 0, 0),
    lambda b, a, o: b.norm(nd.backend.NORM["layer_norm"], a, None, None, o, None, None, 0.1),
    lambda b, a, o: b.scatter(nd.backend.SCATTER["scatter_add"], a, nd.arange(3), o),
    lambda b, a, o: b.rows(nd.backend.ROWS["softmax"], a, o),
]


@pytest.mark.parametrize("dtype", HALVES)
@each("i", range(len(VERBS)))
def test_verbs_of_the_cpu_refuse_halves(i, dtype):
    """Their kernels would take the words for elements of four or eight bytes."""
    a, out = nd.ones((3, 3), dtype), nd.zeros((3, 3), dtype)
    cases = [(a, out), (a, nd.zeros((3, 3))), (nd.ones((3, 3)), out)]
    for given, target in cases[:1] if i == 6 else cases:  # random has no input
        with pytest.raises((TypeError, ValueError)):
            VERBS[i](nd.cpu().backend, given, target)


@pytest.mark.parametrize("dtype", [*HALVES, "uint8"])
def test_products_with_small_weights(dtype, device):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 3, 40)).astype("float32"), rng.normal(size=(40, 70)).astype("float32")
    a = nd.array(x, device=device)
    if dtype == "uint8":
        weight = nd.array(np.clip(np.round(w * 40) + 128, 0, 255), "uint8", device)
        got = nd.matmul_weight(a, weight)
        expected = x.astype("float64") @ (weight.numpy().astype("float64") - 128)
    else:
        weight = nd.array(w, dtype, device)
        got, expected = a @ weight, x.astype("float64") @ weight.numpy().astype("float64")
        np.testing.assert_allclose((a @ weight.T.copy().T).numpy(), got.numpy(), rtol=1e-4, atol=1e-4)
        bias = nd.array(w[0], device=device)
        np.testing.assert_allclose(nd.linear(a, weight, bias).numpy(), expected + w[0], rtol=1e-4, atol=1e-4)
        assert (a[0] @ weight).dtype == "float32" and (a.astype("float64") @ weight).dtype == "float64"
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-3)
    assert got.dtype == "float32" and got.shape == (2, 3, 70)


def test_threads_do_not_change_products_with_small_weights(threads):
    rng = np.random.default_rng(0)
    a = nd.array(rng.normal(size=(2, 700)))
    for made in (rng.normal(size=(700, 1030)), rng.normal(size=(1030, 700)).T):
        weight, results = nd.array(np.ascontiguousarray(made), "bfloat16"), set()
        for count in (1, 2, 5):
            threads(count)
            results.add((a @ weight).numpy().tobytes() + (a @ weight.T.copy().T).numpy().tobytes())
        assert len(results) == 1
