"""What the four pyproject.toml files say fits together, and is what got installed."""

import re
import tomllib
from importlib import import_module
from importlib.metadata import distribution, entry_points, version

import pytest
from packaging.requirements import Requirement

IMPORT_ROOTS = {
    "needle-ndarray": "needle_ndarray",
    "needle-core": "needle",
    "needle-nn": "needle_nn",
    "needle-cuda": "needle_cuda",
}
NEEDS = {
    "needle-ndarray": set(),
    "needle-core": {"needle-ndarray"},
    "needle-nn": {"needle-core"},
    "needle-cuda": {"needle-ndarray"},
}


@pytest.fixture(scope="module")
def projects(repository):
    """{distribution: its [project] table}"""
    files = sorted(repository.glob("packages/*/pyproject.toml"))
    tables = [tomllib.loads(file.read_text())["project"] for file in files]
    return {table["name"]: table for table in tables}


def test_the_four_distributions(projects, repository):
    assert set(projects) == set(IMPORT_ROOTS)
    assert {folder.name for folder in repository.glob("packages/*/")} == set(IMPORT_ROOTS)


@pytest.mark.parametrize("name", IMPORT_ROOTS)
def test_version_is_the_same_everywhere(projects, repository, name):
    declared = projects[name]["version"]
    assert version(name) == declared
    assert import_module(IMPORT_ROOTS[name]).__version__ == declared
    changelog = (repository / "packages" / name / "CHANGELOG.md").read_text()
    assert re.search(r"^## (\S+)", changelog, re.MULTILINE)[1] == declared


@pytest.mark.parametrize("name", IMPORT_ROOTS)
def test_in_repo_bounds(projects, name):
    """Needs are exactly the design's, and their bounds admit the present version but not the next minor one."""
    needs = [Requirement(text) for text in projects[name]["dependencies"]]
    needs = {need.name: need.specifier for need in needs if need.name in IMPORT_ROOTS}
    assert set(needs) == NEEDS[name]
    for other, specifier in needs.items():
        major, minor, _ = map(int, projects[other]["version"].split("."))
        assert projects[other]["version"] in specifier
        assert f"{major}.{minor + 1}.0" not in specifier


@pytest.mark.parametrize("name", IMPORT_ROOTS)
def test_common_metadata(projects, repository, name):
    project, folder = projects[name], repository / "packages" / name
    assert project["requires-python"] == ">=3.11"
    assert project["license"] == "Apache-2.0"
    assert "test" in project["optional-dependencies"]
    assert (folder / "LICENSE").read_text() == (repository / "LICENSE").read_text()
    assert (folder / "src" / IMPORT_ROOTS[name] / "py.typed").exists()
    assert any((folder / "tests").glob("test_*.py"))


@pytest.mark.parametrize("name", IMPORT_ROOTS)
def test_installed_with_type_marker(name):
    from importlib.resources import files

    assert files(IMPORT_ROOTS[name]).joinpath("py.typed").is_file()


@pytest.mark.parametrize("name", IMPORT_ROOTS)
def test_installed_without_the_output_of_cython(name):
    """The course's C files are a reader's to edit, not the output of Cython."""
    found = [str(file) for file in distribution(name).files or [] if file.suffix == ".c"]
    assert [file for file in found if not file.startswith("needle_nn/learning/")] == []


def test_backends_are_found_by_entry_point():
    found = {point.name: point.load() for point in entry_points(group="needle.backends")}
    assert {"cpu", "cpu_numpy"} <= set(found)
    assert {name: make().name for name, make in found.items()} == {name: name for name in found}
