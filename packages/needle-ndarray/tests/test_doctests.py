"""The examples in the docstrings, of the pure Python modules and of the compiled ones."""

import doctest
import importlib

import pytest

MODULES = """
    dtypes devices creation manipulation indexing linalg random elementwise reductions convolution fused optimizers ndarray
    layout operands dispatch backend buffer interop
""".split()


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(f"needle_ndarray.{name}")
    failed, _ = doctest.testmod(module, extraglobs={"nd": importlib.import_module("needle_ndarray")})
    assert failed == 0


def test_there_are_examples():
    """testmod finds them: a change that hides them from it would make the tests above pass for nothing."""
    finder = doctest.DocTestFinder()
    found = [t for name in MODULES for t in finder.find(importlib.import_module(f"needle_ndarray.{name}"))]
    assert sum(len(t.examples) for t in found) >= 15
