"""The repository as text: nothing that belongs to one machine, and CI runs what the README says."""

import re

import pytest

TEXT = {".py", ".pyx", ".pxd", ".pxi", ".pyi", ".md", ".toml", ".json", ".yml", ".yaml", ".sh", ""}
TEXT |= {".h", ".cu", ".cuh", ".cpp"}
# Spelled in pieces: this file is looked through as well.
MACHINE = re.compile("|".join(rf"/{a}{b}/\w" for a, b in [("ho", "me"), ("Us", "ers"), ("ro", "ot"), ("wo", "rk")]))


@pytest.fixture(scope="module")
def texts(repository, files):
    """{path: text} of every text file that belongs to the repository."""
    return {str(path.relative_to(repository)): path.read_text() for path in files if path.suffix in TEXT}


def test_no_paths_of_a_machine(texts):
    assert {"README.md", "noxfile.py", ".ci/run", "packages/needle-core/src/needle/__init__.py"} <= set(texts)
    found = [f"{name}: {hit[0]}" for name, text in texts.items() for hit in MACHINE.finditer(text)]
    assert found == []


def test_text_files_are_clean(texts):
    """No tabs, no carriage returns, one newline at the end."""
    bad = [name for name, text in texts.items() if "\t" in text or "\r" in text or (text and text[-1:] != "\n")]
    assert bad == []


def test_c_is_made_of_functions(texts):
    """No bodies of functions in macros: a debugger and a sanitizer name lines of functions only."""
    long_macros = re.compile(r"^ *# *define [^\n]*\\\n", re.MULTILINE)
    found = [
        name
        for name, text in texts.items()
        if name.startswith("packages/needle-ndarray/src") and long_macros.search(text)
    ]
    assert found == []


def test_nothing_is_included(texts):
    """Modules have an interface, a .pxd; fragments that are included have none."""
    assert [name for name in texts if name.endswith(".pxi")] == []


def test_test_files_have_names_of_their_own(texts):
    """Two test modules of one name cannot be run together."""
    names = [name.rpartition("/")[2] for name in texts if "/test_" in name and "tests/" in name]
    assert sorted(names) == sorted(set(names))


def test_ci_runs_the_commands_of_the_readme(texts):
    commands = re.findall(r"^python3 -m venv .*$", texts["README.md"], re.MULTILINE)
    assert len(commands) == 2
    assert commands[0] == commands[1] + " -s demo"
    assert texts[".ci/run"].splitlines()[-1] == commands[1]


def test_root_pyproject_holds_tool_settings_only(repository):
    import tomllib

    assert set(tomllib.loads((repository / "pyproject.toml").read_text())) == {"tool"}
