"""What the contract's sizes do not reach: tiles side by side, blocks that take batch after batch, lists of many parameters."""

import pytest
from contract_cases import run_case

from needle_cuda import convolution, network, products
from needle_cuda.optimizers import PARAMETERS
from needle_ndarray.devices import device
from needle_ndarray.ndarray import make_array
from needle_ndarray.testing.calls import call
from needle_ndarray.testing.cases import plain
from needle_ndarray.testing.convolution import CONVOLUTIONS
from needle_ndarray.testing.network import NetworkSuite
from needle_ndarray.testing.optimizers import OptimizerSuite
from needle_ndarray.testing.products import ProductSuite

FLOATS = ["float32", "float64"]


def suite(kind):
    made = kind()
    made.device = "cuda"
    return made


@pytest.fixture
def few_blocks(monkeypatch):
    """Grids with one block along the batch: it takes the matrices one after another."""
    for module in (products, network):
        monkeypatch.setattr(module, "MOST_BATCHES", 1)


# ---- Attention -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [((), 5, 70, 70, 130), ((2,), 66, 10, 129, 3), ((), 3, 3, 4, 200)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("verb", ["attention", "attention_grad"])
def test_attention_of_many_columns(verb, causal, sizes):
    """More columns of q, k and v than a tile has: blocks side by side, each with the weights for itself."""
    for dtype in FLOATS:
        suite(NetworkSuite).attention_case(verb, dtype, sizes, causal=causal)


@pytest.mark.parametrize("mask", ["none", "bool", "float", "row"])
@pytest.mark.parametrize("verb", ["attention", "attention_grad"])
def test_attention_one_matrix_after_another(few_blocks, verb, mask):
    sizes, tests = ((3,), 70, 35, 9, 6), suite(NetworkSuite)
    tests.attention_case(verb, "float32", sizes, tests.mask(mask, "float32", (3, 70, 35)), causal=True)


@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize("m, k, n", [(40, 20, 35), (40, 20, 1), (1, 20, 40), (3, 3000, 1)])
def test_products_one_matrix_after_another(few_blocks, dtype, m, k, n):
    for kinds in (("compact", "compact", "compact"), ("swapped", "swapped", "compact")):
        suite(ProductSuite).multiply(dtype, (5,), m, k, n, kinds)


# ---- Rows and columns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2000, 3), (2000, 7), (2000, 12), (5000, 40), (300, 1000)], ids=str)
@pytest.mark.parametrize("verb", ["layer_norm_grad", "batch_norm", "batch_norm_grad"])
def test_sums_of_columns_in_parts(verb, shape):
    """Blocks of every width, and rows that are cut into parts."""
    for dtype in FLOATS:
        suite(NetworkSuite).norm_case(verb, (shape, dtype))


def test_the_same_bits_every_time():
    """Sums in parts, whatever order the blocks run in."""
    backend = device("cuda").backend
    x, grad = (make_array(plain("float32", (3000, 40), salt), "float32", device("cuda")) for salt in (1, 2))
    results = []
    for _ in range(2):
        dx, dweight, dbias = (backend._empty(shape, "float32") for shape in ((3000, 40), (40,), (40,)))
        call(backend, "layer_norm_grad", grad, x, None, 1e-5, dx, dweight, dbias)
        product = backend._empty((40, 40), "float32")
        backend.matmul(x.T, grad, product)
        results.append([backend.to_host(each).tobytes() for each in (dx, dweight, dbias, product)])
    assert results[0] == results[1]


# ---- Convolution -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["depthwise", "depthwise strided", "groups", "depthwise twice"])
def test_convolution_with_few_blocks(monkeypatch, name):
    """More groups and more taps than blocks along an axis of the grid may be."""
    monkeypatch.setattr(convolution, "MOST_BATCHES", 2)
    assert CONVOLUTIONS[name].groups >= 2
    for test in ("test_conv2d", "test_conv2d_input_grad", "test_conv2d_weight_grad"):
        run_case(test, {"dtype": "float32", "name": name, "kinds": ("compact",) * 3, "way": "own"})


# ---- Steps of optimizers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["sgd, penalties", "nesterov", "adamw"])
def test_more_parameters_than_one_launch_takes(monkeypatch, rule):
    launches, backend = [], device("cuda").backend
    own = backend.launcher.launch
    monkeypatch.setattr(
        backend.launcher, "launch", lambda *args, **more: (launches.append(args[1]), own(*args, **more))
    )
    tests = suite(OptimizerSuite)
    monkeypatch.setattr(tests, "steps", lambda verb: {verb: getattr(backend, verb)}, raising=False)
    sizes = [(1 + 37 * i % 50,) for i in range(130)] + [(4096,), (4097,), (0,), (9000,)]
    dtypes = [FLOATS[i % 3 == 2] for i in range(len(sizes))]
    tests.step_case(rule, sizes, dtypes, ["compact"] * 4)
    steps = [name for name in launches if name.endswith("_step")]
    counts = [sum(d == dtype and s != (0,) for s, d in zip(sizes, dtypes, strict=True)) for dtype in FLOATS]
    assert len(steps) == sum(-(-count // 64) for count in counts)


def test_structs_fit_the_arguments_of_a_kernel():
    """At most 4 KB, with the pointers and numbers beside them."""
    assert network.ATTENTION.itemsize + products.MATRIX.itemsize + 8 * 9 <= 4096
    assert PARAMETERS.itemsize + 8 * 11 <= 4096
