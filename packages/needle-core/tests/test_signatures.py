"""What inspect.signature, help() and dir() say of names: of compiled classes and functions as well."""

import inspect
import pydoc
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import needle as ndl
import needle_ndarray as nd
from needle.autograd import Tensor

NAMESPACES = [nd, nd.random, ndl, ndl.autograd, ndl.init, ndl.ops, ndl.random]
CLASSES = [nd.NDArray, nd.Backend, nd.Buffer, nd.Op, nd.Device, Tensor, ndl.TensorTuple, ndl.Op, ndl.TensorOp]


def callables(holder):
    """Public functions and classes of a module or class; exceptions are Python's, and a placeholder says what there is instead."""
    for name in sorted(getattr(holder, "__all__", vars(holder))):
        value = None if name.startswith("_") else getattr(holder, name, None)
        if isinstance(value, type) and issubclass(value, BaseException):
            continue
        if callable(value) and not isinstance(value, ndl.Op):
            yield name, value


@pytest.mark.parametrize("holder", NAMESPACES + CLASSES, ids=lambda holder: holder.__name__)
def test_everything_has_a_signature(holder):
    without = []
    for name, value in callables(holder):
        try:
            inspect.signature(value)
        except (TypeError, ValueError):
            without.append(name)
    assert without == []


SHOWN = [
    (Tensor, "(array, device=None, *sizes, dtype=None, requires_grad=None)"),
    (nd.NDArray, "(other, device=None)"),
    (nd.NDArray.sum, "(self, /, axis=None, keepdims=False)"),
    (nd.NDArray.isnan, "(self, /, *, out=None)"),
    (nd.NDArray([1.0]).isnan, "(*, out=None)"),
    (nd.linear, "(x, weight, bias, /)"),
    (Tensor([1.0]).softmax, "(axes=-1, *, axis=None, dim=None, dtype=None)"),
    (ndl.ops.EWiseAdd, "()"),
    (ndl.ops.AddScalar, "(scalar)"),
    (ndl.ops.Summation, "(axes: 'Axes' = None, keepdims: 'bool' = False) -> 'None'"),
    (ndl.exp, "(a: needle.autograd.Tensor) -> needle.autograd.Tensor"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN, ids=[text for _, text in SHOWN])
def test_signature(value, text):
    assert str(inspect.signature(value)) == text


def test_other_names_of_arguments_are_in_the_signature():
    assert list(inspect.signature(ndl.softmax).parameters) == ["a", "axes", "axis", "dim", "dims"]
    shown = inspect.signature(ndl.expand_dims).parameters
    assert shown["dim"].kind is shown["dim"].KEYWORD_ONLY
    assert shown["axis"].default is ...  # dim= may be given instead
    assert ndl.expand_dims(Tensor([1.0]), dim=0).shape == (1, 1)


def test_help():
    assert "sum(self, /, axes=None" in pydoc.render_doc(Tensor.sum, renderer=pydoc.plaintext)
    assert "sum(self, /, axis=None" in pydoc.render_doc(nd.NDArray, renderer=pydoc.plaintext)
    assert nd.NDArray.isnan.__doc__ == "isnan(x): a != a"
    assert Tensor.__doc__.strip().startswith("An array that remembers how it was made.")


def test_op_classes_are_there_but_not_listed():
    assert "EWiseAdd" not in dir(ndl)
    assert ndl.EWiseAdd is ndl.ops.EWiseAdd
    assert {"exp", "Tensor", "nn", "no_grad"} <= set(dir(ndl))


@pytest.mark.parametrize("package", [nd, ndl], ids=lambda package: package.__name__)
def test_every_compiled_module_has_a_stub(package):
    """In the installed package. Kernels have no names for Python, and _memoryviews is Cython's."""
    folder = Path(package.__file__).parent
    compiled = [p for p in folder.rglob(f"*{EXTENSION_SUFFIXES[0]}") if "kernels" not in p.parts]
    compiled = [p for p in compiled if p.name.partition(".")[0] != "_memoryviews"]
    assert len(compiled) > 10
    assert [p.name for p in compiled if not p.with_name(p.name.partition(".")[0] + ".pyi").exists()] == []


def test_type_names_cost_no_import_of_more_modules():
    code = "import sys, numpy; before = set(sys.modules); import needle; print(sorted({'inspect'} - before))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
