"""Bad calls: the type of the exception, and a message that names both sides."""

import numpy as np
import pytest

import needle as ndl
from needle import ops
from needle.autograd import gradients
from needle_ndarray import BroadcastError

AxisError = np.exceptions.AxisError


def t(*shape, device=None, dtype="float32", **kwargs):
    return ndl.Tensor(np.ones(shape), device=device or ndl.cpu(), dtype=dtype, **kwargs)


def ints(*values, device=None):
    return ndl.Tensor(np.array(values), device=device or ndl.cpu())


def there(*shape):
    return t(*shape, device=ndl.cpu_numpy())


def setter(name, value):
    return lambda x: setattr(x, name, value)


BOTH_DEVICES = ["cpu()", "cpu_numpy()"]

# function of x, of shape (2, 3), exception, fragments of the message
SHAPES = [
    (lambda x: ops.add(x, t(4)), BroadcastError, ["add", "(2, 3)", "(4,)"]),
    (lambda x: x * t(2, 4), BroadcastError, ["multiply", "(2, 3)", "(2, 4)"]),
    (lambda x: x / t(3, 3), BroadcastError, ["divide", "(2, 3)", "(3, 3)"]),
    (lambda x: x ** t(5), BroadcastError, ["power", "(2, 3)", "(5,)"]),
    (lambda x: x - t(2), BroadcastError, ["(2, 3)", "(2,)"]),
    (lambda x: ops.maximum(x, t(2)), BroadcastError, ["maximum", "(2, 3)", "(2,)"]),
    (lambda x: x > t(2), BroadcastError, ["greater", "(2, 3)", "(2,)"]),
    (lambda x: ops.where(np.array([True, False]), x, t(2, 3)), BroadcastError, ["(2,)", "(2, 3)"]),
    (lambda x: x + np.ones(4), BroadcastError, ["add", "(2, 3)", "(4,)"]),
    (lambda x: x @ t(4, 2), ValueError, ["matmul: (2, 3) @ (4, 2)", "3 and 4"]),
    (lambda x: x @ t(4), ValueError, ["matmul: (2, 3)", "3 and 4"]),
    (lambda x: t(4) @ x, ValueError, ["matmul", "(2, 3)", "4 and 2"]),
    (lambda x: t() @ x, ValueError, ["matmul: () @ (2, 3)", "use *"]),
    (lambda x: t(2, 2, 3) @ t(3, 3, 4), ValueError, ["matmul: (2, 2, 3) @ (3, 3, 4)", "leading axes"]),
    (lambda x: ops.matmul(x, 2), ValueError, ["matmul: (2, 3) @ ()"]),
    (lambda x: ops.reshape(x, (4,)), ValueError, ["reshape", "(2, 3)", "6", "(4,)", "4"]),
    (lambda x: ops.reshape(x, (-1, 4)), ValueError, ["reshape", "(2, 3)", "(-1, 4)"]),
    (lambda x: ops.reshape(x, (-1, -1)), ValueError, ["-1"]),
    (lambda x: ops.broadcast_to(x, (3, 2)), BroadcastError, ["(2, 3)", "(3, 2)"]),
    (lambda x: ops.broadcast_to(x, (3,)), BroadcastError, ["(2, 3)", "(3,)"]),
    (lambda x: ops.stack([x, t(3)]), ValueError, ["stack", "(2, 3)", "(3,)"]),
    (lambda x: ops.stack([]), ValueError, ["stack", "one array or more"]),
    (lambda x: ops.concatenate([x, t(2, 3, 1)]), ValueError, ["concatenate", "(2, 3)", "(2, 3, 1)"]),
    (lambda x: ops.concatenate([x, t(2, 4)], 0), ValueError, ["concatenate", "(2, 3)", "(2, 4)", "axis 0"]),
    (lambda x: ops.concatenate([]), ValueError, ["concatenate", "one array or more"]),
    (lambda x: ops.pad(x, ((1, 1),)), ValueError, ["pad", "1 pairs", "(2, 3)"]),
    (lambda x: ops.pad(x, ((-1, 1), (0, 0))), ValueError, ["pad", "(-1, 1)", "0 or more"]),
    (lambda x: ops.dilate(x, (0,), -1), ValueError, ["dilate", "-1", "0 or more"]),
    (lambda x: ops.squeeze(x, 0), ValueError, ["squeeze", "axis 0", "(2, 3)"]),
    (lambda x: ops.einsum("ij,jk->ik", x, t(4, 2)), ValueError, ["einsum", "'ij,jk->ik'", "'j' is 3 and 4"]),
    (lambda x: ops.einsum("ij->ik", x), ValueError, ["einsum", "'ij->ik'", "'ik'"]),
    (lambda x: ops.einsum("ijk->i", x), ValueError, ["einsum", "'ijk'", "(2, 3)"]),
    (lambda x: ops.einsum("ij,jk->ik", x), ValueError, ["einsum", "2 operands", "1"]),
    (lambda x: ops.setitem(x, 0, t(2)), BroadcastError, ["(2,)", "(3,)"]),
    (lambda x: ops.gather(x, [0]), ValueError, ["gather", "(1,)", "(2, 3)"]),
    (lambda x: ops.embedding([0], t(3)), ValueError, ["embedding", "(3,)"]),
    (lambda x: x.backward(t(3)), ValueError, ["out_grad", "(3,)", "(2, 3)"]),
    (lambda x: gradients([x * 2], [x], [t(2)]), ValueError, ["out_grad", "(2,)", "(2, 3)"]),
    (lambda x: gradients([x * 2], [x], []), ValueError, ["0 out_grads for 1 outputs"]),
    (lambda x: x.item(), ValueError, ["(2, 3)", "6"]),
    (lambda x: float(x), ValueError, ["(2, 3)", "6"]),
    (lambda x: bool(x > 0), ValueError, ["(2, 3)", ".any()"]),
]

AXES = [
    (lambda x: ops.summation(x, 2), AxisError, ["sum", "axis 2", "2 axes"]),
    (lambda x: ops.summation(x, (0, -3)), AxisError, ["sum", "axis -3", "2 axes"]),
    (lambda x: ops.summation(x, (0, 0)), ValueError, ["sum", "(0, 0)", "twice"]),
    (lambda x: ops.mean(x, 3), AxisError, ["axis 3", "2 axes"]),
    (lambda x: ops.var(x, 7), AxisError, ["axis 7", "2 axes"]),
    (lambda x: ops.max(x, 5), AxisError, ["max", "axis 5", "2 axes"]),
    (lambda x: ops.max(t(0, 3), 0), ValueError, ["max", "(0, 3)", "axis 0", "no elements"]),
    (lambda x: ops.min(t(0)), ValueError, ["min", "(0,)", "no elements"]),
    (lambda x: ops.logsumexp(t(0)), ValueError, ["logsumexp", "(0,)", "no elements"]),
    (lambda x: ops.argmax(t(0)), ValueError, ["argmax", "(0,)", "no elements"]),
    (lambda x: ops.softmax(x, 2), AxisError, ["softmax", "axis 2", "2 axes"]),
    (lambda x: ops.logsoftmax(x, -3), AxisError, ["softmax", "axis -3", "2 axes"]),
    (lambda x: ops.cumsum(x, 2), AxisError, ["cumsum", "axis 2", "2 axes"]),
    (lambda x: ops.argmax(x, 4), AxisError, ["argmax", "axis 4", "2 axes"]),
    (lambda x: ops.any(x, 5), AxisError, ["any", "axis 5", "2 axes"]),
    (lambda x: ops.transpose(x, (0,)), ValueError, ["transpose", "(0,)", "two axes"]),
    (lambda x: ops.transpose(x, (0, 1, 2)), ValueError, ["transpose", "(0, 1, 2)", "two axes"]),
    (lambda x: ops.transpose(x, (0, 2)), AxisError, ["axis 2", "2 axes"]),
    (lambda x: ops.transpose(t(3)), AxisError, ["axis -2", "1 axes"]),
    (lambda x: ops.permute(x, (0,)), ValueError, ["permute", "(0,)", "(2, 3)"]),
    (lambda x: ops.permute(x, (0, 0)), ValueError, ["permute", "(0, 0)", "(2, 3)"]),
    (lambda x: ops.swapaxes(x, 0, 3), AxisError, ["swapaxes", "axis 3", "2 axes"]),
    (lambda x: ops.squeeze(x, 4), AxisError, ["squeeze", "axis 4", "2 axes"]),
    (lambda x: ops.expand_dims(x, 4), AxisError, ["expand_dims", "axis 4", "3 axes"]),
    (lambda x: ops.flip(x, 3), AxisError, ["flip", "axis 3", "2 axes"]),
    (lambda x: ops.stack([x, x], 4), AxisError, ["stack", "axis 4", "3 axes"]),
    (lambda x: ops.split(x, 2), AxisError, ["axis 2", "2 axes"]),
    (lambda x: ops.split(t(), 0), AxisError, ["axis 0", "0 axes"]),
    (lambda x: ops.concatenate([x], 3), AxisError, ["concatenate", "axis 3", "2 axes"]),
    (lambda x: ops.take(x, [0], 5), AxisError, ["take", "axis 5", "2 axes"]),
    (lambda x: ops.gather(x, [[0]], 5), ValueError, ["gather", "axis 5", "(2, 3)"]),
]

INDICES = [
    (lambda x: x[5], IndexError, ["5", "axis 0", "(2, 3)"]),
    (lambda x: x[-3], IndexError, ["-3", "axis 0", "(2, 3)"]),
    (lambda x: x[0, 0, 0], IndexError, ["3", "(2, 3)"]),
    (lambda x: x[1.0], IndexError, ["float"]),
    (lambda x: x["a"], IndexError, ["str"]),
    (lambda x: x[[7]], IndexError, ["7", "axis 0", "2"]),
    (lambda x: x[np.array([True, False, True])], IndexError, ["(3,)", "(2, 3)"]),
    (lambda x: x[t(1)], IndexError, ["float32"]),
    (lambda x: ops.setitem(x, 9, 1.0), IndexError, ["9", "axis 0", "(2, 3)"]),
    (lambda x: ops.take(x, [9], 0), IndexError, ["9", "axis 0", "2"]),
    (lambda x: ops.gather(x, [[9]], 1), IndexError, ["9", "axis 1", "3"]),
    (lambda x: ops.embedding([9], x), IndexError, ["9", "2"]),
    (lambda x: ops.embedding(np.array([0.5], "float32"), x), IndexError, ["not whole"]),
    (lambda x: ops.take(x, np.array([np.nan], "float32"), 0), IndexError, ["not whole"]),
    (lambda x: ops.tuple_get_item(ops.split(x, 0), 5), IndexError, []),
    (lambda x: ops.tuple_get_item(ops.make_tuple(x, x), 5), IndexError, []),
    (lambda x: ops.split(x, 0)[2], IndexError, ["entry 2 of a tuple of 2"]),
]

TYPES = [
    (lambda x: ops.exp(1.0), TypeError, ["Exp", "Tensor", "float"]),
    (lambda x: ops.log(None), TypeError, ["Log", "Tensor", "NoneType"]),
    (lambda x: ops.add(1, 2), TypeError, ["EWiseAdd", "Tensor", "int"]),
    (lambda x: ops.add(x, "a"), TypeError, ["EWiseAdd", "Tensor", "str"]),
    (lambda x: ops.add(x, None), TypeError, ["EWiseAdd", "Tensor", "NoneType"]),
    (lambda x: ops.setitem(x, 0, "a"), TypeError, ["SetItem", "str"]),
    (lambda x: x + "a", TypeError, ["+", "Tensor", "str"]),
    (lambda x: None - x, TypeError, ["-", "NoneType", "Tensor"]),
    (lambda x: x * 1j, TypeError, ["*", "Tensor", "complex"]),
    (lambda x: x @ 2, TypeError, ["@", "Tensor", "int"]),
    (lambda x: ops.clip(x, "a"), TypeError, ["str"]),
    (lambda x: ops.power_scalar(x, "a"), TypeError, ["str"]),
    (lambda x: ops.add_scalar(x, None), TypeError, ["NoneType"]),
    (lambda x: ops.add_scalar(x, np.ones(2)), ValueError, ["size 1"]),
    (lambda x: ops.astype(x, "float8"), TypeError, ["float8", "float32, float64"]),
    (lambda x: ops.tuple_get_item(x, 0), TypeError, ["TupleGetItem", "TensorTuple", "Tensor"]),
    (lambda x: ops.EWiseAdd()(x), TypeError, ["EWiseAdd"]),
    (lambda x: ops.EWiseAdd()(), TypeError, ["EWiseAdd"]),
    (lambda x: ops.Exp()(x, x), TypeError, ["Exp"]),
    (lambda x: len(t()), TypeError, ["0-d"]),
    (lambda x: iter(t()), TypeError, ["0-d"]),
    (lambda x: ints(1).requires_grad_(), TypeError, ["only floats", "int64"]),
    (lambda x: ints(1).backward(), RuntimeError, ["nothing", "requires a gradient"]),
    (lambda x: gradients([1], [x]), TypeError, ["int", "Tensor"]),
    (setter("data", 1), TypeError, ["Tensor.data", "Tensor", "int"]),
    (setter("data", t(2, 3, dtype="float64")), TypeError, ["Tensor.data", "float64", "float32"]),
    (setter("grad", 1), TypeError, ["Tensor.grad", "Tensor", "int"]),
    (lambda x: np.asarray(x, copy=False), ValueError, ["copied to NumPy"]),
]

DEVICES = [
    (lambda x: x + there(2, 3), ValueError, ["add", *BOTH_DEVICES]),
    (lambda x: there(2, 3) - x, ValueError, ["add", *BOTH_DEVICES]),
    (lambda x: x @ there(3, 2), ValueError, ["matmul", *BOTH_DEVICES]),
    (lambda x: ops.where(x > 0, x, there(2, 3)), ValueError, ["where", *BOTH_DEVICES]),
    (lambda x: ops.stack([x, there(2, 3)]), ValueError, ["stack", *BOTH_DEVICES]),
    (lambda x: ops.concatenate([x, there(2, 3)]), ValueError, ["concatenate", *BOTH_DEVICES]),
    (lambda x: ops.maximum(x, there(2, 3)), ValueError, ["maximum", *BOTH_DEVICES]),
    (lambda x: ops.einsum("ij,ij->", x, there(2, 3)), ValueError, BOTH_DEVICES),
    (lambda x: ops.equal(x, there(2, 3)), ValueError, ["equal", *BOTH_DEVICES]),
    (lambda x: ops.setitem(x, 0, there(3)), ValueError, ["setitem", *BOTH_DEVICES]),
    (lambda x: x[ints(0, device=ndl.cpu_numpy())], ValueError, ["index", *BOTH_DEVICES]),
    (lambda x: ops.take(x, ints(0, device=ndl.cpu_numpy()), 0), ValueError, ["index", *BOTH_DEVICES]),
    (lambda x: ops.embedding(ints(0, device=ndl.cpu_numpy()), x), ValueError, ["index", *BOTH_DEVICES]),
    (lambda x: x.backward(there(2, 3)), ValueError, ["out_grad", *BOTH_DEVICES]),
]

IMAGE = t(1, 4, 4, 2)
NETWORK = [
    (lambda x: ops.conv2d(IMAGE, t(3, 3, 3, 1)), ValueError, ["conv2d", "2 channels", "(3, 3, 3, 1)"]),
    (lambda x: ops.conv2d(IMAGE, t(5, 5, 2, 1)), ValueError, ["conv2d", "(5, 5)", "(4, 4)"]),
    (lambda x: ops.conv2d(x, t(3, 3, 3, 1)), ValueError, ["conv2d", "(2, 3)", "(N, H, W, C)"]),
    (lambda x: ops.conv2d(IMAGE, t(3, 3, 1, 3), groups=2), ValueError, ["2", "3"]),
    (lambda x: ops.conv2d(IMAGE, t(3, 3, 2, 1), stride=0), ValueError, ["stride", "0"]),
    (lambda x: ops.conv2d(IMAGE, t(3, 3, 2, 1), padding=-1), ValueError, ["padding", "-1"]),
    (lambda x: ops.conv2d(IMAGE, t(3, 3, 2, 1), dilation=0), ValueError, ["dilation", "0"]),
    (lambda x: ops.conv2d(IMAGE, t(3, 3, 2, 1), t(3)), ValueError, ["bias", "(3,)", "(1,)"]),
    (lambda x: ops.conv2d(IMAGE, there(3, 3, 2, 1)), ValueError, BOTH_DEVICES),
    (lambda x: ops.conv(IMAGE, t(3, 3, 1, 1)), ValueError, ["2 channels", "(3, 3, 1, 1)"]),
    (lambda x: ops.conv1d(x, t(3, 3, 1)), ValueError, ["conv1d", "(2, 3)", "(3, 3, 1)"]),
    (
        lambda x: ops.conv_transpose2d(IMAGE, t(3, 3, 2, 1)),
        ValueError,
        ["conv_transpose2d", "(1, 4, 4, 2)", "(3, 3, 2, 1)"],
    ),
    (lambda x: ops.conv_transpose2d(IMAGE, t(3, 3, 1, 2), output_padding=1), ValueError, ["output_padding", "1"]),
    (lambda x: ops.max_pool2d(IMAGE, 5), ValueError, ["max_pool2d", "(5, 5)", "(4, 4)"]),
    (lambda x: ops.avg_pool2d(IMAGE, 0), ValueError, ["size", "0"]),
    (lambda x: ops.max_pool2d(x, 2), ValueError, ["(2, 3)"]),
    (lambda x: ops.layer_norm(x, t(4)), ValueError, ["weight", "(4,)", "(3,)", "(2, 3)"]),
    (lambda x: ops.layer_norm(t()), ValueError, ["layer_norm", "0-d"]),
    (lambda x: ops.batch_norm(x, t(3), t(2)), ValueError, ["bias", "(2,)", "(3,)", "(2, 3)"]),
    (lambda x: ops.batch_norm(x, axis=2), ValueError, ["batch_norm", "axis 2", "(2, 3)"]),
    (lambda x: ops.batch_norm(x, training=False), ValueError, ["batch_norm", "running_mean"]),
    (lambda x: ops.mean_squared_error(x, t(3)), ValueError, ["mean_squared_error", "(2, 3)", "(3,)"]),
    (lambda x: ops.mean_squared_error(x, "a"), TypeError, ["mean_squared_error", "str"]),
    (lambda x: ops.cross_entropy(x, [0]), ValueError, ["cross_entropy", "(1,)", "(2, 3)"]),
    (lambda x: ops.cross_entropy(x, [0, 3]), IndexError, ["3"]),
    (lambda x: ops.cross_entropy(x, [0, 1], "max"), ValueError, ["cross_entropy", "'max'"]),
    (lambda x: ops.cross_entropy(x, [0, 1], label_smoothing=2), ValueError, ["label_smoothing", "2"]),
    (lambda x: ops.scaled_dot_product_attention(x, t(4, 2), x), ValueError, ["(2, 3)", "(4, 2)"]),
    (lambda x: ops.scaled_dot_product_attention(x, x, t(4, 3)), ValueError, ["(2, 3)", "(4, 3)"]),
    (lambda x: ops.dropout(x, 1.0), ValueError, ["dropout", "1.0"]),
    (lambda x: ops.dropout(x, -0.1), ValueError, ["dropout", "-0.1"]),
]

CALLS = {"shapes": SHAPES, "axes": AXES, "indices": INDICES, "types": TYPES, "devices": DEVICES, "network": NETWORK}


@pytest.mark.parametrize(
    ("call", "error", "fragments"),
    [pytest.param(*row, id=f"{group} {i}") for group, rows in CALLS.items() for i, row in enumerate(rows)],
)
def test_bad_call(call, error, fragments):
    with pytest.raises(error) as caught:
        call(t(2, 3))
    assert type(caught.value) is error
    missing = [part for part in fragments if part not in str(caught.value)]
    assert not missing, f"{caught.value}: does not say {missing}"


def test_broadcast_error_is_an_assertion_error():
    """As the course has it."""
    assert issubclass(BroadcastError, AssertionError) and issubclass(BroadcastError, ValueError)


@pytest.mark.parametrize(
    ("gradient", "error", "fragments"),
    [
        (lambda g, node: g[0], ValueError, ["Made.gradient", "(3,)", "(2, 3)"]),
        (lambda g, node: (g, g), ValueError, ["Made.gradient", "2 gradients for 1 inputs"]),
        (lambda g, node: 1.0, TypeError, ["Made.gradient", "float", "Tensor or None"]),
    ],
    ids=["shape", "number", "type"],
)
def test_bad_gradient(gradient, error, fragments):
    class Made(ndl.TensorOp):
        def compute(self, x):
            return x * 2

        def gradient(self, out_grad, node):
            return gradient(out_grad, node)

    with pytest.raises(error) as caught:
        Made()(t(2, 3)).sum().backward()
    assert not [part for part in fragments if part not in str(caught.value)], caught.value


def test_op_without_gradient():
    class Made(ndl.TensorOp):
        def compute(self, x):
            return x * 2

    with pytest.raises(NotImplementedError, match="Made has no gradient"):
        Made()(t(2)).sum().backward()
    with pytest.raises(NotImplementedError, match=r"Empty\.compute"):
        type("Empty", (ndl.TensorOp,), {})()(t(2))
