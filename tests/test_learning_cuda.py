"""Chapter 5 of the course where all packages are installed: the emulation runs a file, and its reports name lines of it."""

import subprocess
import sys

import pytest

from needle_nn.learning import chapter, check_file


def solution():
    return (chapter(5).folder / "solution.cu").read_text()


def outcome(tmp_path, text):
    path = tmp_path / chapter(5).file()
    path.write_text(text)
    return {each.title: (each.state, each.told) for each in check_file(chapter(5), path)}


def test_the_solution_passes_in_a_process_of_its_own(tmp_path):
    found = outcome(tmp_path, solution())
    assert {state for state, _ in found.values()} == {"passed"} and len(found) == 13


SECOND_BARRIER = "right[p][x];\n        __syncthreads();"
MISTAKES = {  # what is replaced, by what, the check that shows it, its message; {line} is that of the text "here"
    "race": (SECOND_BARRIER, "right[p][x];  // here", "matmul: several tiles", "matmul: race: left loaded by thread"),
    "bounds": ("FOR_EACH(i, n)", "FOR_EACH(i, n + 1)", "saxpy: more threads than elements",
               "saxpy: parameter a: loaded out of bounds, 4 bytes beyond the end of 400, line 8 of chapter5_cuda.cu"),
    "compiler": ("+ half];", "+ half]  // here", "saxpy: fewer threads than elements",
                 "chapter5_cuda.cu does not compile: chapter5_cuda.cu:{line}:"),
    "barrier": ("    float sum = 0;\n    for (i64 start", "    float sum = 0;\n    if (i >= m) return;\n    for (i64 start",
                "matmul: sizes that no tile divides", "matmul: divergent barrier: of 256 threads"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_reports(name, tmp_path):
    old, new, check, told = MISTAKES[name]
    assert solution().count(old) == 1
    text = solution().replace(old, new)
    line = next((i for i, each in enumerate(text.splitlines(), 1) if "// here" in each), None)
    state, message = outcome(tmp_path, text)[check]
    assert state == "failed" and told.replace("{line}", str(line)) in message and "\n" not in message


def test_without_needle_cuda_it_says_what_to_install(tmp_path):
    path = tmp_path / chapter(5).file()
    path.write_text(solution())
    code = (
        "import sys; sys.modules['needle_cuda'] = None\n"
        "from needle_nn.learning import chapter\n"
        "from needle_nn.learning.worker import checks_of, load, run\n"
        f"print(run(checks_of(chapter(5))[0], load(__import__('pathlib').Path({str(path)!r}))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "this chapter needs needle-cuda: pip install ./packages/needle-cuda" in done.stdout
