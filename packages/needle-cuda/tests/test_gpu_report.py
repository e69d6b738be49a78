"""The report that a machine with a GPU gives, made here of small suites on the emulated device."""

import pytest

from needle_cuda.testing import report

SUITE = """
import numpy as np, pytest
import needle_ndarray as nd

def test_adds():
    a = nd.array(np.ones(3, np.float32), device=nd.cuda())
    assert (a + a).numpy().tolist() == [2, 2, 2]

@pytest.mark.parametrize("n", [1, 2])
def test_fails(n):
    assert n == 0, f"{n} is not zero"

@pytest.mark.skip
def test_skipped():
    pass
"""


@pytest.fixture
def suite(tmp_path):
    def make(text, name="test_small.py"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return make


def test_report_has_counts_failures_and_the_machine(suite, capsys):
    benchmark = suite("print('| matmul | 1 ms |')", "benchmark.py")
    assert report.main(["--benchmark", benchmark, suite(SUITE), suite(SUITE) + " -k adds"]) == 1
    text = capsys.readouterr().out
    assert "- GPU: Emulated device, compute capability 75" in text
    first, second = (line for line in text.splitlines() if "test_small.py" in line and line.startswith("|"))
    assert "| 1 | 2 | 1 |" in first and "-k adds` | 1 | 0 | 0 |" in second
    assert "- `test_fails[1]: AssertionError: 1 is not zero" in text
    assert text.rstrip().endswith("### Benchmark\n\n| matmul | 1 ms |")


def test_exit_code(suite, capsys):
    assert report.main([suite(SUITE) + " -k adds"]) == 0
    assert report.main([suite(SUITE) + " -k nothing_of_this_name"]) == 1  # no test has passed
    assert report.main([suite("import nothing_of_this_name")]) == 1
    assert report.main(["/nonexistent/test_it.py"]) == 1
    assert "pytest: ERROR: file or directory not found" in capsys.readouterr().out


def test_a_benchmark_that_fails(suite, capsys):
    benchmark = suite("raise SystemExit('no torch')", "benchmark.py")
    report.main(["--benchmark", benchmark, suite(SUITE) + " -k adds"])
    assert "It failed:\n\n```\nno torch\n```" in capsys.readouterr().out


def test_without_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(report, "why_disabled", lambda: "cupy is missing")
    assert report.main(["x"]) == 1
    assert "CUDA cannot be used here: cupy is missing" in capsys.readouterr().err
