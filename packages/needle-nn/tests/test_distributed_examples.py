"""The examples in the docstrings of needle_nn.distributed."""

import doctest
import importlib

import pytest

MODULES = """
    agreement communicator cutting flat gathering launching ops overlap parallel parts pipeline sharding starting
    tensors testing trees worker
""".split()


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(f"needle_nn.distributed.{name}"))
    assert failed == 0 and tried > 0
