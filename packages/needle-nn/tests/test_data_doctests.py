"""The examples in the docstrings of needle_nn.data, and its face."""

import doctest
import importlib

import pytest

import needle
import needle_nn.data as data

MODULES = "characters dataset digits fetch loader pickles samplers sources text transforms".split()


def find(name):
    return importlib.import_module(f"needle_nn.data.{name}")


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, tried = doctest.testmod(find(name), extraglobs=vars(data))
    assert failed == 0 and tried > 0


def test_face():
    assert len(data.__all__) == len(set(data.__all__)) >= 25
    assert all(getattr(needle.data, name) is getattr(data, name) for name in data.__all__)


def test_public_names_say_what_they_do():
    assert [name for name in data.__all__ if not getattr(data, name).__doc__] == []
