"""What users of NumPy and PyTorch try: it works, or a message says what does."""

import inspect
import pickle
from types import ModuleType

import numpy as np
import pytest

import needle as ndl
import needle_ndarray as nd


def test_size_is_a_number_that_can_be_called():
    x = ndl.Tensor(np.zeros((2, 3)))
    assert x.size == 6 and isinstance(x.size, int) and type(x.size * 2) is int and f"{x.size}" == "6"
    assert type(pickle.loads(pickle.dumps(x.size))) is int
    assert x.size() == (2, 3) == x.shape and x.size(0) == 2 and x.size(-1) == x.size(dim=1) == 3
    with pytest.raises(IndexError):
        x.size(2)


def test_transpose_takes_two_axes_either_way():
    x = ndl.Tensor(np.zeros((2, 3, 4)))
    assert x.transpose(0, 1).shape == x.transpose((0, 1)).shape == x.transpose(axes=[0, 1]).shape == (3, 2, 4)
    assert x.transpose().shape == x.transpose(None).shape == (2, 4, 3)
    for given in ((0, 1, 2), (0,)):
        with pytest.raises(ValueError, match=r"expected two axes to swap; permute takes an order of all"):
            x.transpose(*given)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool", np.float32, np.dtype("int32"), float])
def test_to_moves_and_converts(dtype):
    x = ndl.Tensor([1.0, 0.0])
    assert x.to(dtype).dtype == x.to(dtype=dtype).dtype == x.to(ndl.cpu_numpy(), dtype).dtype == nd.dtype(dtype)
    assert x.to(ndl.cpu_numpy(), dtype).device == x.to("cpu_numpy").device == ndl.cpu_numpy()
    assert x.to(ndl.Tensor([1.0], ndl.cpu_numpy(), dtype="float64")).dtype == "float64"
    assert x.to("cpu") is x and x.to(x) is x and x.to(x.device, copy=True) is not x
    with pytest.raises(TypeError, match=r"is a dtype; x\.astype\(dtype\) converts"):
        ndl.ops.to_device(x, dtype)


def test_one_hot_with_its_arguments_swapped():
    for positions in ([0, 2], np.array([0, 2]), ndl.Tensor(np.array([0, 2])), (0, 2)):
        with pytest.raises(TypeError, match=r"one_hot: the number of classes comes first, one_hot\(n, positions\)"):
            ndl.init.one_hot(positions, 3)


def test_a_number_format_of_many_elements():
    assert f"{ndl.Tensor([2.0]):.2f}" == "2.00" and f"{ndl.Tensor([1.0, 2.0]):>9}" == "  [1. 2.]"
    with pytest.raises(ValueError, match=r"format '.2f': expected one element, shape \(2,\) has 2"):
        f"{ndl.Tensor([1.0, 2.0]):.2f}"


NUMPY = {
    "sum": {}, "mean": {}, "var": {"ddof": 1}, "std": {"ddof": 1}, "max": {}, "min": {}, "any": {}, "all": {},
}  # fmt: skip


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_s_reductions_take_tensors(name):
    host = np.arange(6.0, dtype="float32").reshape(2, 3)
    x, function = ndl.Tensor(host), getattr(np, name)
    for kwargs in ({}, {"axis": 0}, {"axis": (0, 1)}, {"axis": 1, "keepdims": True}, NUMPY[name]):
        got = function(x, **kwargs)
        assert isinstance(got, ndl.Tensor)
        np.testing.assert_allclose(got.numpy(), function(host, **kwargs), rtol=1e-6)
    with pytest.raises(TypeError, match=rf"{name}: a Tensor's {name} takes no out"):
        function(x, out=np.zeros(3))
    with pytest.raises(TypeError, match=r"axes 0 and axis 1 are two names for the same argument"):
        getattr(x, name)(0, axis=1)


def test_numpy_s_running_sum():
    assert np.cumsum(ndl.Tensor([1.0, 2.0])).tolist() == [1.0, 3.0]
    with pytest.raises(TypeError, match=r"sum: a Tensor's sum takes no dtype"):
        np.sum(ndl.Tensor([1.0]), dtype="float64")


def test_the_signature_that_help_shows():
    shown = str(inspect.signature(ndl.Tensor))
    assert shown == "(array, device=None, *sizes, dtype=None, requires_grad=None)"
    x = ndl.Tensor([1.0], ndl.cpu_numpy())
    assert x.device == ndl.cpu_numpy() and ndl.Tensor([1.0], device=ndl.cpu_numpy()).device == x.device
    with pytest.raises(TypeError):
        ndl.Tensor([1.0], None, "float64")


def test_dlpack_of_a_tensor_shares_its_memory():
    x = ndl.Tensor([1.0, 2.0])
    assert x.__dlpack_device__() == x.realize_cached_data().__dlpack_device__()
    shared = np.from_dlpack(x)
    x.realize_cached_data()[0] = 5.0
    assert shared.tolist() == [5.0, 2.0]
    assert nd.from_dlpack(x * 2).tolist() == [10.0, 4.0]


def test_a_shape_error_in_lazy_mode_names_the_line_of_the_op():
    with ndl.lazy_mode():
        y = ndl.Tensor(np.ones((2, 3))) + ndl.Tensor(np.ones(4))  # the mistake
        z = (y * 2).sum()
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"\(2, 3\) and \(4,\).*; EWiseAdd was recorded at .*test_habits.py.*# the mistake"
        ):
            z.numpy()


def test_every_function_of_arrays_refuses_a_tensor_or_takes_it():
    """No `object has no attribute`: a Tensor is taken where its methods do, or refused by name."""
    x, a = ndl.Tensor(np.ones((2, 2))), nd.ones((2, 2))
    tried = 0
    for name, function in vars(nd).items():
        if name.startswith("_") or isinstance(function, type) or not callable(function):
            continue
        for args in ((x,), (x, 1), (x, x), (a, x), (x, x, x), ([x],), (x, 0, x), (x, (0, 1))):
            tried += 1
            try:
                function(*args)
            except (TypeError, ValueError, IndexError, AttributeError, nd.DeviceError) as error:
                text = str(error)
                assert "Tensor' object has no attribute" not in text and "Cannot convert needle" not in text, (
                    name,
                    text,
                )
    assert tried > 500
    for function in (nd.tril, nd.triu, nd.prod, nd.std, nd.var, nd.transpose, nd.log_softmax):
        with pytest.raises(TypeError, match=r"expected an NDArray, got Tensor; its array is .realize_cached_data\(\)"):
            function(x)


def test_modules_offer_what_is_theirs():
    """Nothing that they import: `needle.import_module` was there once."""
    absent = {
        "nn",
        "optim",
        "data",
        "onnx",
        "distributions",
        "func",
        "distributed",
    }  # needle-nn's, which need not be there
    for module in (ndl, ndl.ops, ndl.backend_ndarray):
        for name in dir(module):
            if not name.startswith("_") and name not in absent:
                value = getattr(module, name)
                home = (
                    value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None) or "needle"
                )
                assert home.startswith(("needle", "builtins")), f"{module.__name__}.{name} is {home}'s"
    for name in ("autograd", "init", "modes", "ops", "random", "transforms", "custom", "testing", "backend_selection"):
        offered: dict = {}
        exec(f"from needle.{name} import *", offered)
        foreign = [n for n, v in offered.items() if isinstance(v, ModuleType) and not v.__name__.startswith("needle")]
        assert not foreign, f"needle.{name}: {foreign}"
