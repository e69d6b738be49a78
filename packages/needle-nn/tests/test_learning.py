"""The course: Needle's own solutions pass every check, every planted mistake fails one, and a file may do what it likes."""

import importlib.util
import json
import os
import shutil
from pathlib import Path

import pytest
from learning_mutations import ALL, Mutation

from needle_nn.command.main import main
from needle_nn.learning import CHAPTERS, chapter, check_file
from needle_nn.learning.worker import checks_of, load, results, run

TOY = Path(__file__).resolve().parents[3] / "docs" / "toy_engine.py"
CUDA = importlib.util.find_spec("needle_cuda") is not None and shutil.which(os.environ.get("CXX", "g++")) is not None
HERE = [each for each in CHAPTERS if each.number != 5 or CUDA]  # tests/test_learning_cuda.py insists on chapter 5


@pytest.fixture(autouse=True)
def generators_as_before():
    import numpy as np

    state = np.random.get_state()  # noqa: NPY002
    yield
    np.random.set_state(state)  # noqa: NPY002


def written(folder, number, mutation=None):
    """The solution of a chapter as a student's files, perhaps with a mistake; the path of the first one."""
    found = chapter(number)
    for ending in found.files:
        text = (found.folder / f"solution{ending}").read_text()
        if mutation and mutation.ending == "toy":
            text = TOY.read_text() + mutation.appended
        elif mutation and mutation.ending == ending and mutation.replaced[0]:
            assert text.count(mutation.replaced[0]) == 1, f"{mutation.title}: change the row of learning_mutations.py"
            text = text.replace(*mutation.replaced)
        elif mutation and ending == found.files[0]:
            text += "\n\n" + mutation.appended + "\n"
        (folder / found.file(ending)).write_text(text)
    return folder / found.file()


def outcome(number, path):
    """{title: (state, told)} of all checks, within this process."""
    return {
        each["title"]: (each["state"], each["told"]) for each in results(chapter(number), path, 0) if "state" in each
    }


@pytest.mark.parametrize("number", [each.number for each in HERE])
def test_solutions_pass(number, tmp_path):
    found = outcome(number, written(tmp_path, number))
    assert {title: told for title, (state, told) in found.items() if state != "passed"} == {}
    assert len(found) == len(checks_of(chapter(number))) >= 10


@pytest.mark.parametrize("number", [each.number for each in HERE])
def test_the_file_to_fill_in_is_empty_everywhere(number, tmp_path):
    found = chapter(number)
    for ending in found.files:
        (tmp_path / found.file(ending)).write_text(found.start(ending))
    assert {state for state, _ in outcome(number, tmp_path / found.file()).values()} == {"empty"}


@pytest.mark.skipif(not TOY.exists(), reason="docs/ is not beside this package")
def test_the_toy_engine_passes_chapter_2():
    assert {state for state, _ in outcome(2, TOY).values()} == {"passed"}


@pytest.mark.parametrize("mutation", ALL, ids=lambda m: f"{m.chapter} {m.check}, {m.title}".replace(" ", "-"))
def test_a_mistake_is_found(mutation: Mutation, tmp_path):
    if mutation.chapter not in {each.number for each in HERE}:
        pytest.skip("needle-cuda is not installed")
    if mutation.ending == "toy" and not TOY.exists():
        pytest.skip("docs/ is not beside this package")
    path = written(tmp_path, mutation.chapter, mutation)
    (check,) = [each for each in checks_of(chapter(mutation.chapter)) if each.title == mutation.check]
    if mutation.title == "segmentation fault":
        found = {each.title: (each.state, each.told) for each in check_file(chapter(4), path)}
        state, told = found[mutation.check]
        assert "segmentation fault" in told and found["matmul in C"][0] == "passed"
    else:
        state, told = run(check, load(path))
    assert state == "failed", f"the check `{mutation.check}` passed"
    assert told and "\n" not in told


def test_every_check_can_fail():
    for each in CHAPTERS:
        titles = {check.title for check in checks_of(each)}
        assert titles == {mutation.check for mutation in ALL if mutation.chapter == each.number}


# ---- Files that misbehave ------------------------------------------------------------------------------

BAD = {
    "syntax": ("def softmax(Z)\n", "the file", "expected ':' (line 1 of chapter1_softmax.py: def softmax(Z))"),
    "import": ("import nothing_of_this_name\n", "the file", "ModuleNotFoundError: No module named"),
    "exit at once": ("import os\nos._exit(0)\n", "the file", "the process ended (exit code 0)"),
    "no function": ("", "softmax: values", "chapter1_softmax.py defines no `softmax`"),
    "wrong type": ("softmax = lambda Z: 'text'", "softmax: values", "softmax(Z): expected an array, given str"),
    "no return": ("def softmax(Z): Z + 1", "softmax: values", "given None: is a `return` missing?"),
    "shape": ("softmax = lambda Z: Z[:, 0]", "softmax: values", "softmax(Z): expected shape (5, 4), given (5,)"),
    "value": ("softmax = lambda Z: Z * 0", "softmax: values", "softmax(Z)[4, 3]: expected 0.718887, given 0"),
    "error": ("def softmax(Z):\n    return Z / None", "softmax: values", "(line 2 of chapter1_softmax.py: return Z / None)"),
    "sys.exit": ("def softmax(Z):\n    raise SystemExit", "softmax: values", "the file ends the program (exit) (line 2"),
    "os._exit": ("import os\nsoftmax = lambda Z: os._exit(3)", "softmax: values", "the process ended (exit code 3)"),
    "endless": ("def softmax(Z):\n    while True: pass", "softmax: values", "took longer than 1 seconds and was stopped"),
    "segfault": ("import ctypes\nsoftmax = lambda Z: ctypes.string_at(0)", "softmax: values", "segmentation fault: compiled"),
    "memory": ("softmax = lambda Z: bytearray(1 << 40)", "softmax: values", "MemoryError"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_misbehaves(name, tmp_path):
    text, title, told = BAD[name]
    path = tmp_path / "chapter1_softmax.py"
    path.write_text(text)
    found = []
    for each in check_file(chapter(1), path, seconds=1):
        found.append(each)
        if len(found) == 4:
            break  # an endless loop in three functions is enough
    assert found[0].title == title and found[0].state == "failed"
    assert told in found[0].told and "\n" not in found[0].told
    assert (len(found) == 1) == (title == "the file")  # else the next check has run, in a new process where need be


# ---- The command -----------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_start_check_list(here, capsys):
    assert main(["learn", "start", "4"]) == 0
    assert sorted(path.name for path in (here / "course").iterdir()) == [
        "chapter4.md",
        "chapter4_arrays.c",
        "chapter4_arrays.py",
    ]
    assert main(["learn", "check", "4"]) == 1
    assert f"0 of {len(checks_of(chapter(4)))} checks pass" in capsys.readouterr().out
    written(here / "course", 4)
    assert main(["learn", "start", "4"]) == 0 and "stays as it is" in capsys.readouterr().out
    assert "is_compact(view)" in (here / "course" / "chapter4_arrays.py").read_text()
    assert main(["learn", "check", "4"]) == 0
    assert "compare with Needle's own: needle learn solution 4" in capsys.readouterr().out
    assert main(["learn"]) == 0
    total = len(checks_of(chapter(4)))
    assert (
        f"4  Strided arrays and a CPU kernel                       {total} of {total} checks pass"
        in capsys.readouterr().out
    )


def test_a_failure_shows_what_was_expected(here, capsys):
    (here / "mine").mkdir()
    (here / "mine" / "chapter1_softmax.py").write_text("softmax = lambda Z: Z * 0\n")
    assert main(["learn", "check", "1", "mine"]) == 1
    out = capsys.readouterr().out
    assert "FAILED  softmax: values\n        softmax(Z)[4, 3]: expected 0.718887, given 0" in out
    assert "        hint: exp(Z) divided by its sum along axis 1" in out
    assert json.loads((here / "mine" / "progress.json").read_text()) == {"1": [1, len(checks_of(chapter(1)))]}


def test_what_the_compiler_says_is_told_once(here, capsys):
    written(here, 4)
    (here / "chapter4_arrays.c").write_text("int add(\n")
    assert main(["learn", "check", "4", "."]) == 1
    out = capsys.readouterr().out
    assert (
        out.count("chapter4_arrays.c does not compile: chapter4_arrays.c:") == 1
        and out.count("        as above\n") == 5
    )
    assert "hint" not in out and "7 of 13 checks pass" in out


def test_a_file_that_does_not_load_counts_no_checks(here, capsys):
    (here / "chapter1_softmax.py").write_text("def softmax(Z)\n")
    assert main(["learn", "check", "1", "."]) == 1
    assert not (here / "progress.json").exists()


def test_solution(capsys):
    assert main(["learn", "solution", "4"]) == 0
    out = capsys.readouterr().out
    assert "int matmul(const float *a" in out and "needle_ndarray/kernels/strided.pyx" in out


@pytest.mark.parametrize("arguments, code, told", [
    (["check", "9"], 2, "chapter 9: expected a number from 1 to 6"),
    (["start", "two"], 2, "invalid int value: 'two'"),
    (["check", "1"], 1, "course/chapter1_softmax.py is not there: needle learn start 1 writes it"),
    (["check", "1", "--seconds", "0"], 2, "--seconds must be above 0"),
    (["chekc", "1"], 2, "did you mean check?"),
])  # fmt: skip
def test_errors_of_the_command(arguments, code, told, here, capsys):
    assert main(["learn", *arguments]) == code
    assert told in capsys.readouterr().err


def test_a_damaged_progress_file_counts_as_none(here, capsys):
    (here / "course").mkdir()
    for text in ("[]", "{", '{"1": 3}', '{"1": ["a", "b"]}'):
        (here / "course" / "progress.json").write_text(text)
        assert main(["learn"]) == 0
        assert "next: needle learn start 1" in capsys.readouterr().out


def test_sources_to_compare_with_exist():
    top = Path(__file__).resolve().parents[3]
    if not (top / "packages").exists():
        pytest.skip("the repository is not beside this package")
    sources = [top, *top.glob("packages/*/src")]
    missing = [
        name for each in CHAPTERS for name in each.compare if not any((folder / name).exists() for folder in sources)
    ]
    assert missing == []
