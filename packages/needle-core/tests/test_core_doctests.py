"""The examples in the docstrings, of the pure Python modules and of the compiled engine."""

import doctest
import importlib

import pytest

MODULES = """
    autograd autograd.backward autograd.dtype_rules autograd.tensor autograd.values
    modes init random statistics transforms drawing custom testing profiling.profile
    ops.arithmetic ops.choosing ops.convolution ops.conversion ops.functions ops.fused ops.helpers ops.indexing ops.linalg
    ops.network ops.reductions ops.shapes ops.tuples
""".split()


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(f"needle.{name}"))
    assert failed == 0


def test_there_are_examples():
    """testmod finds them: a change that hides them from it would make the tests above pass for nothing."""
    finder = doctest.DocTestFinder()
    found = [t for name in MODULES for t in finder.find(importlib.import_module(f"needle.{name}"))]
    assert sum(len(t.examples) for t in found) >= 40
