"""Test a wheel that cibuildwheel has installed: `python .github/test_wheel.py PACKAGE_FOLDER REPOSITORY`."""

import subprocess
import sys
from pathlib import Path

TESTS = {
    "needle-ndarray": ["test_contract", "test_views", "test_matmul_cpu", "test_config", "test_threads"],
    "needle-core": ["test_ops", "test_autograd", "test_core_import", "test_course_core"],
}

package, repository = (Path(given).resolve() for given in sys.argv[1:])
files = [str(repository / "packages" / package.name / "tests" / f"{name}.py") for name in TESTS[package.name]]
settings = [
    "-c",
    str(repository / "pyproject.toml"),
    "--rootdir",
    str(repository),
    "-n2",
    "-m",
    "not parity and not slow",
]
sys.exit(subprocess.run([sys.executable, "-m", "pytest", *settings, *files]).returncode)
