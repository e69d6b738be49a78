"""Fixtures of the integration tests."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def repository():
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def python(tmp_path):
    """Run Python in a fresh process outside the repository; return the finished process, output captured."""

    def run(*args):
        return subprocess.run([sys.executable, *args], cwd=tmp_path, capture_output=True, text=True, timeout=120)

    return run
