"""The repository as text: nothing that belongs to one machine, and CI runs what the README says."""

import multiprocessing.reduction  # noqa: F401  it looks at the platform when it is imported
import re
import runpy

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


def test_pre_commit_has_the_tools_of_lint(texts):
    """The same programs in the same versions."""
    bounds = r'"((?:ruff|cython-lint|clang-format)[<>=][^"]+)"'
    lint = texts["noxfile.py"].partition("def lint(")[2].partition("\ndef ")[0]
    assert set(re.findall(bounds, texts[".pre-commit-config.yaml"])) == set(re.findall(bounds, lint)) != set()


@pytest.mark.parametrize(
    "version, bound, found",
    [
        ("0.1.0", ">=0.1,<0.2", []),
        ("0.1.7", ">=0.1,<0.2", ["needle-ndarray has version 0.1.0, expected 0.1.7"]),
        ("0.1.0", ">=0.1", ["needle-core asks for needle-ndarray>=0.1, expected needle-ndarray>=0.1,<0.2"]),
    ],
)
def test_versions_fit(repository, version, bound, found):
    versions = runpy.run_path(str(repository / "tools" / "versions.py"))
    core = {"version": version, "dependencies": [f"needle-ndarray{bound}", "numpy>=2.0"]}
    projects = {"needle-ndarray": {"version": "0.1.0"}, "needle-core": core}
    assert versions["mistakes"](projects, version) == found


def test_the_versions_of_the_four_fit(repository, python):
    done = python(repository / "tools" / "versions.py")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["ndarray", "core", "nn", "cuda"])
def test_the_changelog_of_the_first_release_is_a_list_of_what_there_is(texts, name):
    """Not a diary of repairs to what nobody has installed. A merge that keeps both sides may bring the old text back."""
    text = texts[f"packages/needle-{name}/CHANGELOG.md"]
    assert text.count("\n") < 90 and text.count("\nThe first release") == 1


def test_workflows_name_sessions_that_exist(texts):
    sessions = set(re.findall(r"@nox\.session\n(?:@each_package\n)?def (\w+)", texts["noxfile.py"]))
    named = re.findall(
        r"nox -s ((?:\"?[\w()]+\"? ?)+)",
        "".join(texts[name] for name in texts if name.startswith(".github/workflows/")),
    )
    found = {re.sub(r'"|\(.*', "", word) for line in named for word in line.split()}
    assert found and found <= sessions


@pytest.mark.parametrize("name", ["needle-ndarray", "needle-core"])
def test_windows_is_refused_in_one_line(repository, name, monkeypatch):
    """Where it has not been built; the metadata name the systems where it has."""
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(SystemExit, match=rf"{name} has not been built on Windows yet: use WSL"):
        runpy.run_path(str(repository / "packages" / name / "setup.py"))
    text = (repository / "packages" / name / "pyproject.toml").read_text()
    assert re.findall(r"Operating System :: ([\w :]+)", text) == ["POSIX :: Linux", "MacOS"]
