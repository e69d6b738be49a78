"""The examples in the docstrings of checkpoints, training, reports and the command."""

import doctest
import importlib

import pytest

MODULES = """
    checkpoint packing report reporting.charts reporting.markup reporting.pictures training.metrics training.trainer
    command.bench command.page
""".split()


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(f"needle_nn.{name}"))
    assert failed == 0 and tried > 0
