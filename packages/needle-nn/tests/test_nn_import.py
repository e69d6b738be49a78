"""needle-nn is there, under its own name and under needle's."""

from importlib import import_module

import pytest

import needle


@pytest.mark.parametrize("name", ["nn", "optim", "data", "onnx", "distributed"])
def test_face_shows_the_canonical_objects(name):
    face, canonical = import_module(f"needle.{name}"), import_module(f"needle_nn.{name}")
    assert getattr(needle, name) is face
    assert all(getattr(face, public) is getattr(canonical, public) for public in canonical.__all__)
