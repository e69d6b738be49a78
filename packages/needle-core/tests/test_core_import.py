"""What `needle` shows by itself: the faces of needle-ndarray, the default device, messages about absent sisters."""

import inspect
import os
import subprocess
import sys

import pytest

import needle
import needle.backend_ndarray
import needle.backend_ndarray.ndarray
import needle.backend_selection
import needle_ndarray

# the course's names
COURSE_NAMES = """NDArray BackendDevice cpu cuda cpu_numpy default_device all_devices
array empty full broadcast_to reshape maximum log exp tanh sum flip""".split()


def fresh(code, **env):
    """Run `code` in a new interpreter; return its exit code, stdout and stderr."""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize("name", COURSE_NAMES)
@pytest.mark.parametrize("face", [needle.backend_ndarray, needle.backend_ndarray.ndarray], ids=lambda m: m.__name__)
def test_face_shows_the_canonical_object(face, name):
    assert getattr(face, name) is getattr(needle_ndarray, name)


def test_face_shows_everything_public():
    public = {name for name, value in vars(needle_ndarray).items() if name[0] != "_" and not inspect.ismodule(value)}
    assert len(public) > len(COURSE_NAMES)
    assert public <= set(dir(needle.backend_ndarray))


@pytest.mark.parametrize("name", "NDArray all_devices cpu cpu_numpy cuda default_device show_config".split())
def test_top_level_names(name):
    assert getattr(needle, name) is getattr(needle_ndarray, name)


@pytest.mark.parametrize(
    "name",
    """Op Value TensorOp TensorTuple TensorTupleOp NDArray Tensor ones zeros ones_like zeros_like init ops autograd random
    no_grad enable_grad lazy_mode anomaly_mode grad value_and_grad vjp jvp jacobian hessian hvp checkpoint operator
    draw_graph set_default_dtype get_default_dtype testing""".split(),
)
def test_names_of_this_package(name):
    assert getattr(needle, name) is not None and name in dir(needle)


def test_ops_offers_classes_and_functions_only():
    """Ops that hold nothing are made once, which is nobody else's concern."""
    assert not [name for name in needle.ops.__all__ if isinstance(getattr(needle, name), needle.Op)]


def test_submodule_is_the_face_not_the_extension():
    from needle import backend_ndarray as nd

    assert nd.ndarray is sys.modules["needle.backend_ndarray.ndarray"]


@pytest.mark.parametrize(
    ("backend", "device"), [(None, "cpu()"), ("nd", "cpu()"), ("np", "cpu_numpy()")], ids=["unset", "nd", "np"]
)
def test_needle_backend_chooses_the_default_device(backend, device):
    env = {} if backend is None else {"NEEDLE_BACKEND": backend}
    if backend is None and "NEEDLE_BACKEND" in os.environ:
        pytest.skip("NEEDLE_BACKEND is set")
    code = "import needle; print(needle.default_device(), needle.backend_ndarray.array([1, 2]).device)"
    assert fresh(code, **env) == (0, f"{device} {device}", "")


def test_unknown_backend_is_refused():
    status, _, err = fresh("import needle", NEEDLE_BACKEND="tpu")
    assert status == 1
    assert err.endswith("RuntimeError: NEEDLE_BACKEND=tpu: expected nd or np")


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="module 'needle' has no attribute 'nonsense'"):
        _ = needle.nonsense


# needle-nn is not found, whether or not it is installed
HIDE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "needle_nn":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import needle
"""


@pytest.mark.parametrize("face", ["nn", "optim", "data", "onnx"])
@pytest.mark.parametrize(
    ("use", "error"),
    [
        ("import needle.{0}", "ModuleNotFoundError"),
        ("from needle import {0}", "ModuleNotFoundError"),
        ("needle.{0}", "AttributeError"),
    ],
    ids=["import", "from", "attribute"],
)
def test_missing_sister_says_what_to_install(face, use, error):
    status, _, err = fresh(HIDE + use.format(face))
    assert status == 1
    message = f"needle.{face} is part of needle-nn, which is not installed: pip install needle-nn"
    assert err.splitlines()[-1] == f"{error}: {message}"


def test_missing_sister_is_no_attribute():
    assert fresh(HIDE + "print(hasattr(needle, 'nn'))") == (0, "False", "")


def test_first_use_names_are_listed():
    assert {"nn", "optim", "data", "onnx"} <= set(dir(needle))
