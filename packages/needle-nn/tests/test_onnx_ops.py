"""Every row of needle-core's table of ops in onnxruntime; every class of ops has a converter, or a reason why it has none."""

import inspect

import numpy as np
import pytest
from onnx_helpers import BATCHES, Apply, export, nodes, resized, same
from op_table import ABSTRACT, NON_DIFFERENTIABLE, ROWS, TOLERANCE, outputs

import needle as ndl
from needle import ops
from needle.autograd import Op
from needle.ops.helpers import Undifferentiable
from needle_ndarray.testing import each
from needle_nn.onnx import ExportError
from needle_nn.onnx.converters.elementwise import UNDIFFERENTIABLE
from needle_nn.onnx.reasons import NOT_EXPRESSIBLE
from needle_nn.onnx.registry import CONVERTERS

EXPRESSIBLE = "not expressible"
#: Functions without a derivative whose result has as many elements as the values say.
DATA_SHAPED = {"nonzero", "unique", "bincount"}
#: Rows that are refused: what the message has to say. EXPRESSIBLE: their class is listed with a reason.
REFUSED = {
    "getitem/Tensor mask": "mask that depends on the input",
    "GetItem/x[Tensor mask]": "mask that depends on the input",
    "setitem/(2, 4) at repeated places, the last counts": "positions that repeat",
    "make_tuple/as an input": "Product has no converter",
    "split/as an input": "Product has no converter",
    **{
        row.id: "looks at the values"
        for row in ROWS
        if row.name in DATA_SHAPED  # how many there are depends on the values
    },
    **{
        row.id: "of integers: ONNX has no node for it before opset 18"
        for row in ROWS
        if row.name.startswith("bitwise") and "bools" not in row.id
    },
}
#: onnxruntime's optimiser makes a Gemm of this empty product, and then fails on its shape.
RUNTIME_FAILS = {"linear/(2, 5, 0) (0, 4) (4,)"}
CLASSES = {name for name in ops.__all__ if inspect.isclass(getattr(ops, name)) and issubclass(getattr(ops, name), Op)}
UNTESTED = {cls.__name__ for cls in NOT_EXPRESSIBLE}
PARTS = {name: [row for row in ROWS if row.name == name] for name in dict.fromkeys(row.name for row in ROWS)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("onnx")


@pytest.mark.parametrize("name", PARTS)
def test_rows(name, folder):
    for row in PARTS[name]:
        check_row(row, folder)


def check_row(row, folder):
    arrays = tuple(row.arrays("float32"))

    def model(*inputs):
        return outputs(row.fn(*inputs))

    if row.name in UNTESTED or row.id in REFUSED:
        with pytest.raises(ExportError) as caught:
            export(model, arrays, folder, dynamic_batch=False)
        assert REFUSED.get(row.id, row.name) in str(caught.value), row.id
    elif row.id not in RUNTIME_FAILS:
        try:
            _, run = export(model, arrays, folder, dynamic_batch=False)
            same(model, run, arrays, TOLERANCE["float32"])
        except Exception as error:
            error.add_note(row.id)
            raise


def test_every_class_has_a_converter_or_a_reason():
    known = {cls.__name__ for cls in CONVERTERS} | {cls.__name__ for cls in NOT_EXPRESSIBLE} | {"TupleGetItem"}
    assert known >= CLASSES - ABSTRACT, "write a converter, or the reason why there is none"
    assert not set(CONVERTERS) & set(NOT_EXPRESSIBLE)
    assert all(reason for reason in NOT_EXPRESSIBLE.values())


def test_every_function_without_a_derivative_has_a_converter():
    assert NON_DIFFERENTIABLE - {"all_equal"} - DATA_SHAPED <= UNDIFFERENTIABLE
    assert Undifferentiable in CONVERTERS


# ---- Batches of other sizes ---------------------------------------------------------------------------------

X = np.random.default_rng(0).uniform(0.1, 2.0, (4, 3, 5)).astype("float32")
IDS = np.array([[0, 2], [1, 1], [2, 0], [2, 2]])
MASK = X[:, :, 0] > 1
ROWS_OF_FUNCTIONS = {
    # shapes that were worked out from the batch
    "reshape": (lambda x: x.reshape((x.shape[0] * 3, 5)), X),
    "reshape/-1": (lambda x: x.reshape((-1, 15)), X),
    "reshape/two sizes": (lambda x: every_pair(x).reshape((x.shape[0], 2 * x.shape[0])), X),
    "broadcast_to": (lambda x: ndl.ops.broadcast_to(x[:1], x.shape) + x, X),
    "zeros": (lambda x: ndl.concatenate([x, ndl.zeros(x.shape[0], 1, 5)], 1), X),
    "ones times a number": (lambda x: x * ndl.init.constant(*x.shape, c=3.0), X),
    "mean by hand": (lambda x: x.sum() / (x.shape[0] * 15), X),
    "batch as a factor": (lambda x: x * x.shape[0] + (x.shape[0] - 1), X),
    "batch as a tensor": (lambda x: x / ndl.Tensor(x.shape[0]) + ndl.Tensor([[x.shape[0] - 1.0]]), X),
    "variance": (lambda x: x.var(0, ddof=1), X),
    "softmax of two axes": (lambda x: ops.softmax(x, (1, 2)), X),
    "flatten": (lambda x: ops.cumsum(x), X),
    # the last example, every second one, from the end
    "getitem/last": (lambda x: x[-1], X),
    "getitem/last by number": (lambda x: x[x.shape[0] - 1], X),
    "getitem/half": (lambda x: x[: x.shape[0], 1:], X),
    "getitem/steps": (lambda x: x[::-1, ::2, None], X),
    "getitem/gather": (lambda x: ops.gather(x[:, 0], ops.argmax(x[:, 0], -1, keepdims=True), -1), X),
    "getitem/list": (lambda x: x[:, [2, 0]], X),
    "getitem/lists": (lambda x: x[:, [2, 0], [1, 1]], X),
    "getitem/lists apart": (lambda x: x[[0, 1], :, [1, 2]], X),
    "getitem/mask": (lambda x: x[:, np.array([True, False, True])], X),
    "getitem/own positions": (lambda i: ndl.Tensor(np.arange(12.0).reshape(4, 3))[i], IDS),
    "getitem/own pairs": (lambda i: ndl.Tensor(np.arange(12.0).reshape(4, 3))[i, i], IDS),
    "setitem": (lambda x: ops.setitem(x, (slice(None), 1, slice(None, None, 2)), x[:, 0, ::2] * 2), X),
    "setitem/in place": (lambda x: assigned(x * 1, x), X),
    "take": (lambda x: ops.take(x, [2, 0], 1), X),
    "embedding of floats": (lambda x: ops.embedding(ops.floor(x), ndl.Tensor(np.eye(3))), X * 0.9),
    "one_hot": (lambda i: ndl.init.one_hot(4, i), IDS),
    # no derivative
    "comparison with a number": (lambda x: ops.where(x > 1, x, 0.1), X),
    "comparison of ints": (lambda i: ops.where(ops.equal(i, 2), 1, i), IDS),
    "comparison with a float": (lambda i: (i > 0.5).astype("float32"), IDS),
    "logic": (lambda x: ops.logical_and(x > 0.5, ops.logical_not(x > 1)), X),
    "any": (lambda m: ops.any(m, 1), MASK),
    "all/keepdims": (lambda m: ops.all(m, 1, keepdims=True), MASK),
    "argmin/all": (lambda x: ops.argmin(x), X),
    "astype": (lambda x: (x * 3).astype("int32"), X),
    "detach": (lambda x: x.detach() * 2 + x.data, X),
    # ints
    "ints": (lambda i: (i * 2 + 1) / 3 - i, IDS),
    "sum of bools": (lambda m: m.sum(1), MASK),
    "mean of ints": (lambda i: i.mean(1), IDS),
    "matmul of ints and floats": (lambda i: i @ ndl.Tensor(np.eye(2)), IDS),
    # attention
    "attention/mask": (lambda x: ndl.scaled_dot_product_attention(x, x, x, mask=ops.greater(x @ x.transpose(), 4)), X),
    "attention/bias": (lambda x: ndl.scaled_dot_product_attention(x, x, x, mask=x @ x.transpose(), causal=True), X),
    "attention/nothing to see": (lambda x: ndl.scaled_dot_product_attention(x, x[:, :1], x[:, :1], causal=True), X),
    "attention/one of all": (lambda x: ndl.scaled_dot_product_attention(x, x[:1], x[:1]), X),
    "batch norm by the batch": (lambda x: ndl.batch_norm(x, axis=2), X),
    "batch norm/last axis": (lambda x: normed_by(ndl.ones(5), x), X),
    "several results": (lambda x: {"a": x, "b": [x * 2, (x, None)]}, X),
    "constant result": (lambda x: (x, ndl.ones(2, 3)), X),
    "operators of arrays": (lambda x: (2 - x) / np.ones(5, "float32") ** 2 @ np.eye(5, 2), X),
}  # fmt: skip


def every_pair(x):
    return ndl.broadcast_to(x[:, :1, :1], (x.shape[0], 2, x.shape[0]))


def normed_by(ones, x):
    return ndl.batch_norm(x, running_mean=ones, running_var=ones * 2, training=False, axis=2)


def assigned(y, x):
    y[:, 0] = x[:, 1] * 3
    return y


@pytest.mark.parametrize("name", ROWS_OF_FUNCTIONS)
def test_batches_of_other_sizes(name, folder):
    function, example = ROWS_OF_FUNCTIONS[name]
    _, run = export(function, example, folder)
    for n in (2, *BATCHES):
        if name == "getitem/lists apart" and n == 1:
            continue  # it asks for example 1
        same(function, run, (resized(example, n, 0),), TOLERANCE["float32"])


NEAR_ZERO = np.array([0, 1e-30, 1e-8, -1e-8, 3e-4, -3e-4, 0.4999, -0.4999, 0.5, 3, 80, np.inf, np.nan], "float32")


@each("name, more", [("log1p", [-0.9, -1.0]), ("expm1", [-3.0, -90.0, -np.inf])])
def test_small_arguments_keep_their_digits(folder, name, more):
    x = np.concatenate([NEAR_ZERO, np.array(more, "float32")])
    _, run = export(function := getattr(ops, name), x, folder)
    same(function, run, (x,), {"rtol": 3e-6, "atol": 0})


def test_float64(folder):
    function = Apply(lambda m, x: ops.relu(x @ x.transpose()).sum(-1) / 3 + 0.1)
    x = X.astype("float64")
    path, run = export(function, ndl.Tensor(x, dtype="float64"), folder)
    (found,) = run(x)
    assert found.dtype == "float64" and "Cast" not in nodes(path)
    np.testing.assert_allclose(found, function(ndl.Tensor(x, dtype="float64")).numpy(), **TOLERANCE["float64"])
