"""The examples in the docstrings of checkpoints, training, reports, models, generation and the command."""

import doctest
import importlib

import pytest

MODULES = """
    checkpoint interop lora packing locking weights report reporting.charts reporting.markup reporting.pictures
    training.metrics training.trainer training.arguments training.carried training.history
    command.arguments command.bench command.page
    models.configuration models.gpt2 models.llama models.resnet models.vit
    generation.cache generation.decoding generation.sampling generation.tokenizers generation.writing serving.requests
""".split()


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(f"needle_nn.{name}"))
    assert failed == 0 and tried > 0
