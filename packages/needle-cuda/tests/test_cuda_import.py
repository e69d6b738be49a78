"""Importing is cheap, and a device that cannot be used explains itself: in processes of their own, without emulation."""

import os
import subprocess
import sys

import pytest


def run(code: str, **environment: str) -> str:
    variables = {name: value for name, value in os.environ.items() if name != "NEEDLE_CUDA_EMULATION"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables | environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_no_cupy():
    code = "import sys, needle_cuda, needle_ndarray; needle_ndarray.cuda(), needle_ndarray.cuda(1)"
    assert run(f"{code}; print('cupy' in sys.modules)") == "False"


def test_names_of_devices():
    code = "from needle_ndarray import cuda, device; print(cuda(), cuda(1), cuda() == cuda(0), device('cuda:1') == cuda(1))"
    assert run(code) == "cuda() cuda(1) True True"


def test_without_cupy():
    """Whatever is installed here: as if cupy were not."""
    code = """
import sys
sys.modules["cupy"] = None
from needle_ndarray import cuda, zeros
assert not cuda().enabled()
try:
    zeros(3, device=cuda())
except RuntimeError as error:
    print(error)
"""
    message = run(code)
    assert message.startswith("cuda(): cupy") and "pip install 'needle-cuda[cuda12]'" in message and "\n" not in message


def test_emulation_is_asked_for_by_a_variable():
    pytest.importorskip("needle_cuda.testing")
    code = "import sys; from needle_ndarray import cuda; print(cuda().enabled(), 'cupy' in sys.modules)"
    assert run(code, NEEDLE_CUDA_EMULATION="1") == "True False"
