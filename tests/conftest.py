"""Fixtures of the integration tests."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def repository():
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def files(repository):
    """The files that git has or would add; in a copy without git, those outside environments, builds and caches."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=repository, capture_output=True, check=True, text=True).stdout
        found = {repository / name for name in listed.split("\0") if name}
    except (OSError, subprocess.CalledProcessError):
        made = {path.parent for path in repository.rglob("pyvenv.cfg")}
        made |= {path for name in ("build", "dist", "runs", ".*") for path in repository.glob(name)}
        made -= {repository / ".ci", repository / ".github"}
        found = {path for path in repository.rglob("*") if not made & {path, *path.parents}}
    return sorted(path for path in found if path.is_file())


@pytest.fixture
def python(tmp_path):
    """Run Python in a fresh process outside the repository; return the finished process, output captured."""

    def run(*args):
        return subprocess.run([sys.executable, *args], cwd=tmp_path, capture_output=True, text=True, timeout=120)

    return run
