"""Importing needle: silent, without warnings, without what it does not need; its faces are the real things."""

from importlib import import_module
from inspect import ismodule

import pytest

ROOTS = ["needle", "needle_ndarray", "needle_nn", "needle_cuda"]
FACES = [
    ("needle.backend_ndarray", "needle_ndarray"),
    ("needle.backend_ndarray.ndarray", "needle_ndarray"),
    ("needle.nn", "needle_nn.nn"),
    ("needle.optim", "needle_nn.optim"),
    ("needle.data", "needle_nn.data"),
]


@pytest.mark.parametrize("root", ROOTS)
def test_import_is_silent_and_without_warnings(python, root):
    done = python("-W", "error", "-c", f"import {root}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("root", ROOTS)
def test_import_starts_no_threads(python, root):
    done = python("-c", f"import numpy, os; n = len(os.listdir('/proc/self/task')); import {root}; "
                  "print(len(os.listdir('/proc/self/task')) - n)")  # fmt: skip
    if "No such file" in done.stderr:
        pytest.skip("no /proc here")
    assert (done.returncode, done.stdout.strip()) == (0, "0")


@pytest.mark.parametrize("unwanted", ["cupy", "torch", "needle_nn", "needle_cuda", "scipy_openblas32"])
def test_needle_does_not_import(python, unwanted):
    done = python("-c", f"import sys, needle; print({unwanted!r} in sys.modules)")
    assert (done.returncode, done.stdout.strip()) == (0, "False")


@pytest.mark.parametrize("module", ["needle_ndarray", "needle", "needle.nn", "needle.optim", "needle.testing"])
def test_import_needs_nothing_that_numpy_has_not_imported(python, module):
    """Of the standard library and of NumPy; what else is needed is imported where it is used."""
    code = f"import sys, numpy; before = {{*sys.modules}}; import {module}; new = {{*sys.modules}} - before; "
    found = "sorted(n for n in new if n.partition('.')[0] in {*sys.stdlib_module_names, 'numpy'})"
    done = python("-c", code + f"print({found})")
    assert (done.returncode, done.stdout.strip()) == (0, "[]")


@pytest.mark.parametrize(("face", "canonical"), FACES)
def test_face_shows_the_canonical_objects(face, canonical):
    face, canonical = vars(import_module(face)), vars(import_module(canonical))
    public = [name for name, value in canonical.items() if name[0] != "_" and not ismodule(value)]
    assert [name for name in public if name not in face or face[name] is not canonical[name]] == []


def test_faces_load_on_first_use(python):
    code = "import sys, needle; before = 'needle_nn' in sys.modules; needle.nn, needle.optim, needle.data; "
    done = python("-c", code + "print(before, 'needle_nn' in sys.modules)")
    assert (done.returncode, done.stdout.strip()) == (0, "False True")


def test_a_broken_sister_is_not_called_missing(python):
    """needle-nn is there, but something inside it is not: the error keeps its own message."""
    code = "import sys; sys.modules['needle_nn.nn'] = None; import needle.nn"
    done = python("-c", code)
    assert done.returncode == 1
    assert "pip install" not in done.stderr
    assert "needle_nn.nn" in done.stderr.splitlines()[-1]
