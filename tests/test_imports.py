"""Importing needle: silent, without warnings, without what it does not need; its faces are the real things."""

import re
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
    ("needle.onnx", "needle_nn.onnx"),
    ("needle.distributed", "needle_nn.distributed"),
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
    """Of the standard library and of NumPy; what else is needed is imported where it is used (but __future__)."""
    code = f"import sys, numpy; before = {{*sys.modules, '__future__'}}; import {module}; new = {{*sys.modules}} - before; "
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


# ---- One door --------------------------------------------------------------------------

IMPORT = re.compile(
    r"^[ \t]*(?:from[ ]+(needle_ndarray[\w.]*)[ ]+c?import[ ]+(\([^)]*\)|[^\n#]*)|c?import[ ]+(needle_ndarray[\w.]*))",
    re.MULTILINE,
)


def imports_of_arrays(text):
    """(module, names) of every import of needle_ndarray in Python or Cython code; no names for `import module`."""
    for match in IMPORT.finditer(text):
        names = [part.split(" as ")[0].strip() for part in re.sub(r"[()]|#.*", "", match[2] or "").split(",")]
        yield match[1] or match[3], [name for name in names if name]


def test_imports_of_arrays_are_found():
    text = """
import needle_ndarray as nd
    import needle_ndarray.buffer
cimport needle_ndarray.ndarray
from needle_ndarray import a, b as c  # why
from needle_ndarray.x cimport (
    d,
    e as f,
)  # fmt: skip
    from needle_ndarray.y import *
from needle_ndarrays import z
"""
    assert list(imports_of_arrays(text)) == [
        ("needle_ndarray", []),
        ("needle_ndarray.buffer", []),
        ("needle_ndarray.ndarray", []),
        ("needle_ndarray", ["a", "b"]),
        ("needle_ndarray.x", ["d", "e"]),
        ("needle_ndarray.y", ["*"]),
        ("needle_ndarrays", ["z"]),
    ]


DOORS = {
    "needle-core": ("needle_ndarray", "needle_ndarray.extension", "needle_ndarray.typing"),
    "needle-nn": ("needle_ndarray", "needle_ndarray.extension"),
    "needle-cuda": (
        "needle_ndarray",
        "needle_ndarray.extension",
        "needle_ndarray.backend",
    ),  # the interface of a backend
}


@pytest.mark.parametrize("package", DOORS)
def test_needle_ndarray_is_entered_by_one_door(repository, package):
    """Its public names from needle_ndarray itself, what extensions need from needle_ndarray.extension, nothing from elsewhere."""
    offered = {name: {*import_module(name).__all__, "*", "__version__", "extension"} for name in DOORS[package]}
    files = [
        path
        for end in ("py", "pyx", "pxd", "pxi")
        for path in (repository / "packages" / package / "src").rglob(f"*.{end}")
    ]
    found = [(path.name, *found) for path in files for found in imports_of_arrays(path.read_text())]
    assert len(found) >= 10
    private = [row for row in found if row[1] not in offered or not {*row[2]} <= offered[row[1]]]
    assert private == []
