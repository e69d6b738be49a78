"""The proof can fail: kernels with one thing broken, each found out by the contract suite in the emulation.

The mutations are in mutation_table.py. The tests run within this process, case by case until one fails; mutants are compiled for
one dtype, with every access checked.
"""

from importlib.resources import files

import pytest
from contract_cases import cases, run_case, use_small_grids
from mutation_table import ROWS

from needle_cuda import launch, products
from needle_cuda.launch import KernelError
from needle_cuda.testing import settings
from needle_ndarray import device


@pytest.fixture
def mutant(monkeypatch):
    """A function that breaks a file: modules are compiled anew, from the changed text."""

    def apply(file, text, instead):
        original = (files("needle_cuda") / "kernels" / file).read_text()
        assert original.count(text) >= 1, f"{file} no longer has {text!r}: change the row of this table"
        assert original.count(text) == 1, f"{file} has {text!r} several times: which one does the row mean?"
        whole = launch.source
        launcher = device("cuda").backend.launcher
        monkeypatch.setattr(launch, "source", lambda name: whole(name).replace(text, instead))
        monkeypatch.setattr(launcher, "_kernels", {})
        monkeypatch.setattr(launcher, "_modules", {})
        use_small_grids(monkeypatch, launcher)
        monkeypatch.setattr(products, "FULL", 1)  # products large enough to fill a GPU are small

    with settings.changed(checks="accesses"):
        yield apply


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("file, text, instead, test, where", ROWS)
def test_mutant_is_found_out(file, text, instead, test, where, mutant):
    mutant(file, text, instead)
    tried = 0
    for case in cases(test, where):
        tried += 1
        try:
            run_case(test, case)
        except (AssertionError, KernelError) as error:
            assert "does not compile" not in str(error), error
            return
    pytest.fail(f"{test} passed all its {tried} cases with this mutant of {file}")


@pytest.mark.filterwarnings("ignore")
def test_without_a_mutation_the_same_tests_pass(mutant):
    """The first case of each test of the table: so a failure above comes from the mutation."""
    mutant("common.cuh", "#pragma once", "#pragma once ")
    for test, where in {each.values[3]: each.values[4] for each in ROWS}.items():
        run_case(test, next(iter(cases(test, where))))
