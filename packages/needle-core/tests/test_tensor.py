"""Tensor as an object: making, looking, comparing, copying, converting, writing."""

import copy
import operator
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import needle as ndl
from needle import Tensor

MAKING = [  # given, kwargs -> dtype, shape
    ([1, 2, 3], {}, "float32", (3,)),
    (3, {}, "float32", ()),
    (2.5, {}, "float32", ()),
    ([[1.0], [2.0]], {}, "float32", (2, 1)),
    ([True, False], {}, "bool", (2,)),
    (np.zeros((2, 0)), {}, "float32", (2, 0)),
    (np.float64(2.0), {}, "float32", ()),
    (np.zeros(2, np.float32), {}, "float32", (2,)),
    (np.zeros(2, np.int64), {}, "int64", (2,)),
    (np.zeros(2, np.int32), {}, "int32", (2,)),
    (np.zeros(2, np.int8), {}, "int32", (2,)),
    (np.zeros(2, np.uint8), {}, "uint8", (2,)),
    (np.zeros(2, bool), {}, "bool", (2,)),
    (np.zeros(2), {"dtype": "float64"}, "float64", (2,)),
    ([1, 2], {"dtype": "int32"}, "int32", (2,)),
    (ndl.backend_ndarray.zeros((2, 3), "float64"), {}, "float64", (2, 3)),
]


@pytest.mark.parametrize(("given", "kwargs", "dtype", "shape"), MAKING)
def test_making(given, kwargs, dtype, shape):
    x = Tensor(given, **kwargs)
    assert x.dtype == dtype and x.shape == shape and x.device == ndl.default_device() and x.is_leaf()
    assert x.ndim == len(shape) and x.size == np.prod(shape) and x.nbytes == x.size * x.dtype.itemsize
    assert x.requires_grad == dtype.startswith("float")


def test_default_dtype():
    assert ndl.get_default_dtype() == "float32"
    ndl.set_default_dtype("float64")
    try:
        assert Tensor([1.0]).dtype == "float64" and Tensor(np.zeros(2, np.float32)).dtype == "float32"
    finally:
        ndl.set_default_dtype(None)
    assert Tensor([1.0]).dtype == "float32"
    with pytest.raises(TypeError, match=r"int32: expected float32 or float64"):
        ndl.set_default_dtype("int32")


def test_numpy_as_default_device_keeps_float64():
    code = (
        "import needle as ndl, numpy as np; x = ndl.Tensor(np.ones((2, 2))); y = (x @ x).sum(); y.backward();"
        "print(x.dtype, y.dtype, x.grad.dtype, x.device, ndl.Tensor([1, 2]).dtype)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "NEEDLE_BACKEND": "np"}, capture_output=True, text=True
    )
    assert done.stdout.strip() == "float64 float64 float64 cpu_numpy() float64", done.stderr


def test_a_tensor_of_a_tensor_shares_its_data():
    x = Tensor([1.0, 2.0])
    y = Tensor(x)
    assert y.realize_cached_data() is x.realize_cached_data() and y.is_leaf()
    z = Tensor(x, dtype="float64", device=ndl.cpu_numpy())
    assert z.dtype == "float64" and z.device == ndl.cpu_numpy() and z.numpy().tolist() == [1, 2]


def test_an_array_is_copied():
    source = np.zeros(2, np.float32)
    array = ndl.backend_ndarray.zeros(2)
    x, y = Tensor(source), Tensor(array)
    source[0] = array[0] = 5
    assert x.numpy().tolist() == y.numpy().tolist() == [0, 0]


def test_repr_shows_value_dtype_device_and_op():
    x = Tensor([[1.0, 2.0]], device=ndl.cpu())
    assert repr(x) == "needle.Tensor([[1., 2.]], dtype=float32, device=cpu(), requires_grad=True)"
    assert repr(x + 1) == "needle.Tensor([[2., 3.]], dtype=float32, device=cpu(), op=AddScalar)"
    assert repr(x.detach()) == "needle.Tensor([[1., 2.]], dtype=float32, device=cpu())"
    assert str(x) == "[[1. 2.]]" and f"{x.sum():.2f}" == "3.00"
    assert repr(ndl.split(x, 0)).startswith("needle.TensorTuple(needle.Tensor([1., 2.]")
    assert len(repr(Tensor(np.zeros(100000)))) < 300


def test_numbers():
    x = Tensor([[2.5]])
    assert x.item() == float(x) == 2.5 and int(x) == 2 and x.tolist() == [[2.5]]
    assert np.asarray(x).tolist() == [[2.5]] and np.array(x, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError):
        Tensor([1.0, 2.0]).item()
    with pytest.raises(TypeError, match=r"0-d"):
        len(Tensor(1.0))
    assert len(Tensor([[1], [2]])) == 2 and [t.shape for t in Tensor(np.zeros((2, 3)))] == [(3,), (3,)]


def test_numpy_gives_a_copy():
    x = Tensor([1.0])
    x.numpy()[0] = 5
    np.asarray(x)[0] = 6
    assert x.item() == 1


def test_comparisons_are_by_value_and_equality_by_identity():
    a, b = Tensor([1.0, 2.0, 3.0]), Tensor([3.0, 2.0, 1.0])
    assert (a < b).numpy().tolist() == [True, False, False] and (a >= 2).numpy().tolist() == [False, True, True]
    assert (a < 2).numpy().tolist() == [True, False, False] and (a <= b).dtype == "bool" and (a > b).is_leaf()
    assert ndl.equal(a, b).numpy().tolist() == a.equal(b).numpy().tolist() == [False, True, False]
    assert a.not_equal(2).numpy().tolist() == [True, False, True]
    assert (a == b) is False and a in [b, a]


def test_truth():
    assert Tensor([0.0]) and Tensor(np.zeros((2, 2)))  # objects like any other, as in the course
    assert Tensor(1.0) < 2 and not Tensor(3.0) < 2
    with pytest.raises(ValueError):
        bool(Tensor([1.0, 2.0]) < 2)


class Parameter(Tensor):
    """What a subclass in Python looks like."""


@pytest.mark.parametrize("cls", [Tensor, Parameter])
@pytest.mark.parametrize(
    "how", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "deep", "pickle"]
)
def test_copies(cls, how):
    x = cls(np.arange(4.0).reshape(2, 2))
    if cls is Parameter:
        x.note = ["kept"]
    y = how(x)
    assert type(y) is cls and y.requires_grad and y.is_leaf() and y.numpy().tolist() == x.numpy().tolist()
    assert cls is Tensor or y.note == ["kept"]
    if how is not copy.copy:
        y.realize_cached_data()[0] = 9
        assert x.numpy()[0, 0] == 0


def test_subclasses_take_part_and_results_are_tensors():
    p = Parameter([1.0, 2.0])
    y = p * 2
    y.backward()
    assert type(y) is Tensor and p.grad.numpy().tolist() == [2, 2] and {p: 1}[p] == 1


BINARY = "add sub mul truediv floordiv mod pow matmul lt le gt ge".split()


@pytest.mark.parametrize("name", BINARY)
def test_operators_of_a_tensor_and_a_subclass(name):
    """On the right of a Tensor, a Parameter is asked first, by the reflected operator."""
    function, values = getattr(operator, name), ([[1.0, 5.0], [4.0, 3.0]], [[2.0, 3.0], [1.0, 2.0]])
    expected = function(*map(np.array, values))
    for left, right in ((Tensor, Parameter), (Parameter, Tensor), (Parameter, Parameter)):
        y = function(left(values[0]), right(values[1]))
        assert type(y) is Tensor
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["and_", "or_", "xor"])
def test_bits_of_a_tensor_and_a_subclass(name):
    function, values = getattr(operator, name), ([True, False, True], [True, True, False])
    for left, right in ((Tensor, Parameter), (Parameter, Tensor)):
        y = function(
            left(values[0], dtype="bool", requires_grad=False), right(values[1], dtype="bool", requires_grad=False)
        )
        assert y.tolist() == function(*map(np.array, values)).tolist()


def test_requires_grad():
    x = Tensor([1.0], requires_grad=False)
    assert x.requires_grad_().requires_grad and not x.requires_grad_(False).requires_grad
    with pytest.raises(TypeError, match=r"only floats have gradients, this is int32"):
        Tensor([1], dtype="int32").requires_grad_()


def test_weak_references_and_foreign_attributes():
    import weakref

    x = Tensor([1.0])
    assert weakref.ref(x)() is x
    with pytest.raises(AttributeError):
        x.inputs = ()
    with pytest.raises(AttributeError):
        x.op = None
    with pytest.raises(TypeError, match=r"expected a Tensor or None, got float"):
        x.grad = 1.0


def test_moving_and_casting():
    x = Tensor([1.0, 2.0], device=ndl.cpu())
    y = x.to(ndl.cpu_numpy())
    z = (y * y).sum()
    z.backward()
    assert y.device == ndl.cpu_numpy() and x.grad.device == ndl.cpu() and x.grad.numpy().tolist() == [2, 4]
    assert x.to(ndl.cpu()) is x and x.to(None) is x
    wide = x.astype("float64")
    wide.sum().backward()
    assert wide.dtype == "float64" and x.grad.dtype == "float32" and x.astype("float32") is x
    assert not x.astype("int32").requires_grad


# ---- Writing --------------------------------------------------------------------------


def test_writing_to_a_constant_is_in_place():
    x = Tensor(np.zeros((2, 3)), requires_grad=False)
    before = x.realize_cached_data()
    x[0, 1:] = [1, 2]
    x[1] = Tensor(5.0, requires_grad=False)
    assert x.realize_cached_data() is before and x.numpy().tolist() == [[0, 1, 2], [5, 5, 5]]


def test_writing_to_a_leaf_with_gradient_needs_no_grad():
    x = Tensor(np.zeros(3))
    with pytest.raises(RuntimeError, match=r"a leaf that requires a gradient cannot be written to"):
        x[0] = 1.0
    with ndl.no_grad():
        x[0] = 1.0
    assert x.numpy().tolist() == [1, 0, 0] and x.is_leaf()


def test_writing_to_a_result_is_recorded():
    x, v = Tensor([1.0, 2.0, 3.0]), Tensor([10.0])
    y = x * 2
    y[1:] = v
    assert type(y.op) is ndl.SetItem and y.numpy().tolist() == [2, 10, 10]
    (y * y).sum().backward()
    assert x.grad.numpy().tolist() == [8, 0, 0] and v.grad.numpy().tolist() == [40]


def test_writing_to_a_result_that_was_used_is_refused():
    x = Tensor([1.0, 2.0])
    y = x * 2
    z = y * y
    with pytest.raises(RuntimeError, match=r"has been used already"):
        y[0] = 1.0
    z.sum().backward()
    assert x.grad.numpy().tolist() == [8, 16]


def test_a_refused_write_changes_nothing():
    x = Tensor([1.0, 2.0])
    y = x * 2
    with pytest.raises(IndexError):
        y[7] = 1.0
    y.sum().backward()
    assert type(y.op) is ndl.MulScalar and x.grad.numpy().tolist() == [2, 2]


# ---- Hostile use --------------------------------------------------------------------------

HOSTILE = """
Tensor.__new__(Tensor).numpy()
Tensor.__new__(Tensor).shape
Tensor.__new__(Tensor) + 1
Tensor.__new__(Tensor).backward()
Value().realize_cached_data()
Value() + 1
TensorTuple.__new__(TensorTuple)[0]
len(TensorTuple.__new__(TensorTuple))
Tensor.make_const(3)
TensorTuple.make_const(3)
Tensor.make_from_op(None, [x])
Tensor.make_from_op(ndl.EWiseAdd(), [x])
Tensor.make_from_op(ndl.EWiseAdd(), None)
ndl.EWiseAdd()()
ndl.EWiseAdd()(x, x, x)
ndl.EWiseAdd()(x, object())
ndl.TensorOp()(x)
ndl.Op()(x)
ndl.Op.gradient_as_tuple(None, x, x)
ndl.EWiseMul().gradient(x, None)
ndl.EWiseMul().gradient_as_tuple(x, x)
x.__init__([1.0])
(x * 1).__init__([1.0])
x.backward(3, 4)
x.backward("ones")
x.cached_data.shape.x
setattr(x, 'cached_data', 5) or x + 1
setattr(x, 'data', x.numpy())
autograd.gradients([3], [x])
autograd.gradients([x * 1], [x], [None, None])
autograd.find_topo_sort([3])
autograd.find_topo_sort([None])
autograd.topo_sort_dfs(3, set(), [])
autograd.sum_node_list([])
autograd.compute_gradient_of_variables(None, None)
autograd.set_mode(3, 3)
autograd.release_made(None, ())
autograd.release_made(x, 3)
autograd.trace(None, ())
autograd.trace(x, 3)
autograd.keep_in_trace(x, ndl.EWiseAdd(), (x, x))
autograd.keep_in_trace(3, 4, 5)
autograd.trace(autograd.keep_in_trace, (x, None, (x,)))
autograd.trace(autograd.keep_in_trace, (x, ndl.EWiseAdd(), 5))
autograd.data_of(3)
autograd.rebuild(Tensor, 3, True)
autograd.find_topo_sort(3)
Tensor.backward(5)
Tensor.shape.__get__(5)
Tensor.__add__(5, 5)
Value.requires_grad.__set__(5, True)
autograd.Slot("a", x)
ndl.TupleGetItem(5)(ndl.split(x, 0))
ndl.TupleGetItem(-9)(ndl.split(x, 0)).numpy()
x[None, "a"]
x.reshape()
x.permute(0, 0)
""".strip().splitlines()


@pytest.mark.parametrize("statement", HOSTILE)
def test_misuse_raises_and_does_not_crash(statement):
    names = {
        "ndl": ndl,
        "Tensor": Tensor,
        "Value": ndl.Value,
        "TensorTuple": ndl.TensorTuple,
        "autograd": ndl.autograd,
        "x": Tensor([1.0, 2.0]),
    }
    with pytest.raises(Exception) as caught:
        exec(statement, names)
    assert isinstance(caught.value, Exception) and str(caught.value)
    y = Tensor([1.0]) * 2  # and the engine is whole
    y.backward()
