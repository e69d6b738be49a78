"""The programs under examples/ learn something in a few steps, and are listed in the docs."""

import re
import runpy
import sys

import numpy as np
import pytest


@pytest.fixture
def program(repository, monkeypatch, capsys):
    """main() of a program, from its own folder."""
    folder = repository / "examples"
    monkeypatch.syspath_prepend(str(folder))
    yield lambda name: runpy.run_path(str(folder / f"{name}.py"))["main"]
    sys.modules.pop("cartpole", None)


def falls(losses, share, last=5):
    """Whether losses are a share of what they were."""
    return np.isfinite(losses).all() and np.mean(losses[-last:]) < share * np.mean(losses[:last])


#: name: (arguments, what its results show)
PROGRAMS = {
    "char_gpt": ({"steps": 12, "batch": 4, "context": 24}, lambda losses: falls(losses, 0.9, 3)),
    "tensor_parallel": ({"steps": 12, "batch": 4}, lambda losses: falls(losses, 0.9, 3)),
    "vae": ({"steps": 40}, lambda losses: falls(losses, 0.75)),
    "gan": ({"steps": 30}, lambda found: np.isfinite(found[0]).all() and found[1].shape == (1000, 2)),
    "reinforce": ({"episodes": 4}, lambda lengths: len(lengths) == 4 and min(lengths) > 5),
    "siamese": ({"steps": 25}, lambda found: falls(found[0], 0.8) and found[1] > 0.8),
    "sine": ({"steps": 2}, lambda found: found[0][1] < 0.01 * found[0][0] and found[1].shape == found[2].shape),
    "graph_network": ({"steps": 60}, lambda found: falls(found[0], 0.5) and found[1] > 0.9),
    "text_classifier": ({"steps": 15}, lambda found: np.isfinite(found[0]).all() and found[1] > 0.4),
    "super_resolution": ({"steps": 60}, lambda found: falls(found[0], 0.6)),
    "per_sample_gradients": ({"steps": 30}, lambda found: falls(found[0], 0.8)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_learns(program, name):
    arguments, shown = PROGRAMS[name]
    assert shown(program(name)(**arguments))


def test_every_program_is_here_and_in_the_docs(repository):
    names = {path.stem for path in (repository / "examples").glob("*.py")} - {"cartpole"}
    assert names == set(PROGRAMS)
    page = (repository / "docs" / "examples.md").read_text()
    assert set(re.findall(r"\.\./examples/(\w+)\.py", page)) == names | {"cartpole"}
