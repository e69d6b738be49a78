"""The examples in the docstrings of checkpoints, training, reports and the command."""

import doctest
import importlib

import pytest

MODULES = """
    checkpoint packing locking report reporting.charts reporting.markup reporting.pictures training.metrics training.trainer
    training.history command.arguments command.bench command.page
""".split()


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(f"needle_nn.{name}"))
    assert failed == 0 and tried > 0
