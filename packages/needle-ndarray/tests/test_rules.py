"""The rule book: what its lines mean, that the verbs of the CPU hold to it, and that the page on backends shows it."""

# ruff: noqa: E501  (a row of the table is one line)

import inspect
import textwrap
from pathlib import Path

import pytest

import needle_ndarray as nd
from needle_ndarray.backend import Backend
from needle_ndarray.rule_table import TABLE
from needle_ndarray.rules import RULES, Rule, number
from needle_ndarray.testing import each
from needle_ndarray.testing.rules import arrays_of, mistakes, right, verb_call

PAGE = Path(__file__).parents[3] / "docs/extend/backend.md"
CALLED = [name for name, rule in RULES.items() if rule.verb != "step"]


def called(name):
    """The CPU's verb with arrays that are right, by the verb's names."""
    given = {row[0]: right(name, "cpu")[row[0] if "result" in row[-1] else row[1]] for row in arrays_of(name)}
    begins = [row[0] for row in arrays_of(name) if "begins" in row[-1] and row[0] not in parameters_of(name)]
    return {parameter: a for parameter, a in given.items() if parameter not in begins}


def parameters_of(name):
    return list(inspect.signature(getattr(Backend, RULES[name].verb)).parameters)


def call_verb(name, arrays):
    verb, arguments = verb_call(name, arrays)
    missing = {p: None for p in parameters_of(name)[1:] if p not in arguments}
    if name == "scan":
        missing["axis"] = 0
    getattr(nd.cpu().backend, verb)(**missing | arguments)


@each("name", RULES)
def test_rules_name_the_arguments_of_their_verb(name):
    """Every array is a parameter of the verb that Backend declares."""
    rule, parameters = RULES[name], parameters_of(name)
    names = [row[0] for row in arrays_of(name) if "begins" not in row[-1]]
    assert set(names) <= set(parameters), f"{rule.verb}: {parameters}"


@each("name", CALLED)
def test_verbs_of_the_cpu_guard_the_memory(name):
    """One array of a right call at a time is not what the rule says: an error, and nothing is written."""
    given = called(name)
    call_verb(name, given)
    for parameter, what, wrong in mistakes(name, "cpu", results=True):
        before = {key: a.numpy() for key, a in given.items()}
        with pytest.raises((TypeError, ValueError)) as caught:
            call_verb(name, {**given, parameter: wrong})
        assert name.partition("_in")[0].partition("_weight")[0] in str(caught.value) or "NDArray" in str(
            caught.value
        ), f"{parameter}, {what}: {caught.value}"
        assert all((a.numpy() == before[key]).all() for key, a in given.items() if a.dtype != "bool")


def test_the_page_on_backends_shows_the_rules():
    if not PAGE.exists():
        pytest.skip("docs/ is not beside this package")
    assert textwrap.dedent(TABLE).strip() in PAGE.read_text(encoding="utf-8")


#: (rule, shapes, the error)
ERRORS = {
    "too few arrays": (lambda: RULES["layer_norm"].prepare(nd.ones(3)), "TypeError: layer_norm: 1 arrays were given, the rule has 3"),
    "too many lists": (lambda: RULES["sgd_step"].check_lists([], [], [], []), "TypeError: sgd_step: 4 lists were given, the rule has 3"),
    "too few lists": (lambda: RULES["adam_step"].check_lists([], []), "TypeError: adam_step: 2 lists were given, the rule has 4"),
    "no list": (lambda: RULES["sgd_step"].check_lists(3, 4), "TypeError: sgd_step: expected lists of NDArrays, got int"),
    "a vector for a matrix": (lambda: RULES["linear"].prepare(nd.ones(3), nd.ones((3, 4)), nd.ones(4)), "ValueError: linear: x has shape (3,), expected (..., M, K)"),
    "two axes too many": (lambda: RULES["linear"].prepare(nd.ones((2, 3)), nd.ones((3, 4)), nd.ones((1, 1, 4))), "ValueError: linear: bias has shape (1, 1, 4), expected (4,) as weight is (3, 4)"),
    "a text for a number": (lambda: number("f", "eps", "1"), "ValueError: f: eps = '1': expected a number"),
    "a number below": (lambda: number("f", "eps", -1, 0.0), "ValueError: f: eps = -1: expected a number from 0 on"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, message = ERRORS[name]
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert f"{type(caught.value).__name__}: {caught.value}".startswith(message)


def test_a_rule_made_by_hand_takes_nothing():
    assert Rule().prepare() == () and Rule().fits() and not Rule().fits(nd.ones(3))
    with pytest.raises(TypeError):
        Rule().check_lists([nd.ones(3)])


def test_a_bias_may_have_an_axis_of_one_first():
    x, weight = nd.ones((2, 3)), nd.ones((3, 4))
    assert RULES["linear"].fits(x, weight, nd.ones(4)) and RULES["linear"].fits(x, weight, nd.ones((1, 4)))
    assert not RULES["linear"].fits(x, weight, nd.ones((2, 4))) and not RULES["linear"].fits(x, weight, nd.ones((1, 5)))
    out = nd.zeros((2, 4))
    nd.cpu().backend.linear(x, weight, nd.ones((1, 4)), out)
    assert out.tolist() == [[4.0] * 4] * 2
