"""docs/reading.md: its tables have the lines that they say, and what a weekend's reader reads stays small."""

import re

import pytest

ROW = re.compile(r"^\| (\d+) \| (.*?) \| (\d+) \| (\d+) min \|", re.MULTILINE)
LINK = re.compile(r"\]\(([^)]+)\)")
OUTSIDE = re.compile(r"^\| (.*?) \| ([\d,]+) \| ", re.MULTILINE)
SOURCES = {".py", ".pyx", ".pxd", ".pyi", ".h", ".hpp", ".c", ".cpp", ".cu", ".cuh"}
CORE, ARRAY = "packages/needle-core/src/needle", "packages/needle-ndarray/src/needle_ndarray"
ENGINE = "values recording topology backward memory tensor operators".split()
#: Lines at most. What is over it holds something that belongs elsewhere, or the number is changed here with the reason.
BUDGET = {
    "engine": (2100, [f"{CORE}/autograd/{name}.pyx" for name in ENGINE]),
    "interface": (600, [f"{ARRAY}/backend.pyx", f"{ARRAY}/rule_table.py"]),
    "ops": (3700, [f"{CORE}/ops/*.py"]),
    "NumPy backend": (150, [f"{ARRAY}/numpy_backend.py"]),
    "toy engine": (190, ["docs/toy_engine.py"]),
}  # fmt: skip


def lines(path):
    return len(path.read_text().splitlines())


@pytest.mark.parametrize("part", BUDGET)
def test_budget(part, repository):
    most, patterns = BUDGET[part]
    files = [path for pattern in patterns for path in repository.glob(pattern)]
    assert len(files) >= len(patterns)
    assert sum(map(lines, files)) <= most


def test_the_tables(repository):
    page = repository / "docs" / "reading.md"
    rows = ROW.findall(page.read_text())
    assert [int(number) for number, *_ in rows] == list(range(1, 23))
    for number, files, stated, _ in rows:
        paths = [page.parent / link for link in LINK.findall(files)]
        if paths[0].name == "c_backend.md":
            paths = [page.parent / "extend" / name for name in ("c_backend.py", "c_backend.c", "c_kernels.h")]
        found = sum(map(lines, paths))
        assert abs(found - int(stated)) <= max(30, 0.15 * found), f"row {number}: {found} lines, the page says {stated}"
    assert sum(int(stated) for _, _, stated, _ in rows) < 8000
    hours = sum(int(minutes) for *_, minutes in rows) / 60
    assert hours < 12, "two days, with breaks"


def test_what_is_not_the_weekend(repository, files):
    """The lines of its folders, of all packages and of the tests, here and in the README."""
    sources = {path: lines(path) for path in files if path.suffix in SOURCES}

    def within(*folders):
        return sum(count for path, count in sources.items() if any(path.is_relative_to(folder) for folder in folders))

    def check(stated, found):
        assert abs(found - int(stated.replace(",", ""))) <= max(100, 0.1 * found), f"{stated}: {found} lines"

    page, readme = (repository / name for name in ("docs/reading.md", "README.md"))
    whole = within(*(path / "src" for path in (repository / "packages").iterdir()))
    tests = within(repository / "tests", *(path / "tests" for path in (repository / "packages").iterdir()))
    text, rows = page.read_text(), OUTSIDE.findall(page.read_text().partition("## What is not")[2])
    assert len(rows) == 6
    for cell, stated in rows:
        folders = [(page.parent / link).resolve().parent for link in LINK.findall(cell)]
        check(stated, within(*folders) if folders else tests)
    every, tested = re.search(r"some ([\d,]+) lines, and ([\d,]+) more", text).groups()
    check(every, whole)
    check(tested, tests)
    check(re.search(r"^\| Needle .*? \| .*? \| ([\d,]+) \|", readme.read_text(), re.MULTILINE)[1], whole)


def test_pictures_are_what_the_script_draws(repository, tmp_path, monkeypatch):
    import importlib.util

    folder = repository / "docs" / "reading"
    spec = importlib.util.spec_from_file_location("draw", folder / "draw.py")
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    monkeypatch.setattr(draw, "HERE", tmp_path)
    draw.layers()
    draw.step()
    for name in ("layers.svg", "step.svg"):
        assert (tmp_path / name).read_text() == (folder / name).read_text(), (
            f"python docs/reading/draw.py draws {name} anew"
        )
