"""Wrong calls, made from the rule book: each array of a call that is right is replaced by one that the rule does not allow."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import needle_ndarray
from needle_ndarray.backend import TABLES
from needle_ndarray.convolution import conv2d
from needle_ndarray.creation import zeros
from needle_ndarray.devices import device
from needle_ndarray.ndarray import NDArray
from needle_ndarray.recurrent import gru, lstm
from needle_ndarray.rules import RULES
from needle_ndarray.testing.cases import Suite
from needle_ndarray.testing.tables import each

#: The sizes that symbols have here: all of them differ, so that no two axes are equal by chance.
SIZES = {symbol: size for size, symbol in enumerate("n c t s d e T B H M K N R I".split(), 2)}
SIZES |= {"KH": 3, "KW": 4, "H": 10, "W": 17, "OH": 8, "OW": 14, "C": 18, "D": 18, "F": 19}
STEP = {"stride": (1, 1), "padding": ((0, 0), (0, 0))}
#: What a verb takes besides arrays.
NUMBERS: dict[str, dict[str, Any]] = {
    **{verb: {"eps": 1e-5} for verb in ("norm", "norm_grad")},
    **{verb: {"causal": False, "scale": 1.0} for verb in ("attention", "attention_grad")},
    **{verb: {**STEP, "size": (3, 4)} for verb in ("pool2d", "pool2d_grad")},
    "conv2d": {**STEP, "dilation": (1, 1), "groups": 1},
}
DTYPES = {
    "any": "float32",
    "stored": "float32",
    "float": "float32",
    "summed": "float32",
    "": "float32",
    "mask": "bool",
    "bool": "bool",
    "int64": "int64",
}
#: A dtype that is another one, whatever the arrays before it are.
OTHERS = {
    "any": "int64",
    "float": "int32",
    "summed": "int32",
    "": "float64",
    "mask": "int32",
    "bool": "int32",
    "int64": "float32",
}
#: The function of each rule that has one with the arrays' labels as its parameters.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(needle_ndarray, name)
    for name, rule in RULES.items()
    if rule.verb.removesuffix("_grad") in ("norm", "cross_entropy", "attention", "sequence")
    and hasattr(needle_ndarray, name)
} | {
    "lstm_inference": partial(lstm, keep=False),
    "gru_inference": partial(gru, keep=False),
    "conv2d": conv2d,
    **{
        name: partial(getattr(needle_ndarray, name), size=(3, 4), stride=1)
        for name in ("max_pool2d", "avg_pool2d", "max_pool2d_grad")
    },
}
#: Functions and operators of a (2, 3), square (3, 3), index (1,) here and (`_there`) elsewhere; those of FUNCTIONS and steps apart.
ON_TWO_DEVICES: list[tuple[str, Callable[..., Any]]] = [
    ("add: operands", lambda a, a_there, **_: a + a_there),
    ("sin: operands", lambda a, a_there, **_: vars(needle_ndarray)["sin"](a, out=a_there)),
    ("multiply: operands", lambda a, a_there, **_: vars(needle_ndarray)["multiply"](a, a, out=a_there)),
    ("where: operands", lambda a, a_there, **_: needle_ndarray.where(a > 0, a, a_there)),
    ("matmul: operands", lambda a, square_there, **_: a @ square_there),
    ("tensordot: operands", lambda a, a_there, **_: needle_ndarray.tensordot(a, a_there)),
    ("concatenate: operands", lambda a, a_there, **_: needle_ndarray.concatenate([a, a_there])),
    ("stack: operands", lambda a, a_there, **_: needle_ndarray.stack([a, a_there])),
    ("setitem: operands", lambda a, a_there, **_: a.__setitem__(0, a_there[0])),
    ("setitem: values", lambda a, index, a_there, **_: a.__setitem__(index, a_there[:1])),
    ("index", lambda a, index_there, **_: a[index_there]),
    ("index", lambda a, index_there, **_: needle_ndarray.take(a, index_there, axis=0)),
    ("add_at: values", lambda a, index, a_there, **_: needle_ndarray.add_at(a, index, a_there[:1])),
    ("scatter_add: values", lambda a, index, a_there, **_: needle_ndarray.scatter_add(a, index, a_there[:1])),
    ("matmul: operands", lambda a, square_there, **_: needle_ndarray.linear(a, square_there, a[0])),
    ("add: operands", lambda a, square, a_there, **_: needle_ndarray.linear(a, square, a_there[0])),
]

Wrong = tuple[str, str, Any]


def arrays_of(name: str) -> list[tuple]:
    rest = (3,) if "..." in RULES[name].text and name != "linear" else ()  # whose verb has matrices
    return RULES[name].arrays(SIZES, rest)


def right(name: str, device: Any) -> dict[str, NDArray]:
    """The arrays of a call that is right, by what users call them; results as the verb has them, by the verb's names."""
    kinds = DTYPES | ({"other": "uint8"} if name == "matmul_weight" else {})
    return {
        name if "result" in marks else label: zeros(shape, kinds.get(dtype, "float32"), device)
        for name, label, dtype, shape, _, marks in arrays_of(name)
    }


def mistakes(name: str, device: Any, results: bool) -> Iterator[Wrong]:
    """(label, what is wrong, the array) for every array of a rule; with `results` as a verb sees it, which casts nothing."""
    made = [row for row in arrays_of(name) if results or "result" not in row[-1]]
    if results:
        made = [row for row in made if "begins" not in row[-1]]
    casts_all = not results and RULES[name].verb.startswith(("conv2d", "pool2d"))
    uses = Counter(axis for *_, axes, _ in made for axis in set(axes))
    for i, (parameter, label, dtype, shape, axes, marks) in enumerate(made):
        key, kind = parameter if results else label, DTYPES.get(dtype, "float32")
        yield key, "no array", "junk"
        if "optional" not in marks:
            yield key, "None", None
        for at, axis in enumerate(axes):
            if uses[axis] > 1:
                yield key, f"axis {at}", zeros((*shape[:at], shape[at] + 1, *shape[at + 1 :]), kind, device)
        if ("..." not in axes or uses["..."] > 1) and (
            "attention" not in name or results
        ):  # whose leading axes broadcast
            yield key, "an axis more", zeros((2, *shape), kind, device)
        if (
            dtype != "other"
            and not casts_all
            and (i or dtype == "float")
            and (results or not ("cast" in marks and dtype == "float"))
        ):
            yield key, "dtype", zeros(shape, OTHERS[dtype], device)


def verb_call(name: str, arrays: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The verb of a rule, and its arguments: what the rule does not name is None."""
    rule = RULES[name]
    table = TABLES.get(rule.verb.removesuffix("_grad"), {})
    ops = {"rnn": "rnn_tanh", "sgd_step": "sgd", "adam_step": "adam", "scatter": "put", "unary": "exp", "binary": "add"}
    short = name.removesuffix("_grad").removesuffix("_inference")
    op = table.get(name) or table.get(ops.get(name, short), next(iter(table.values()), None))
    return rule.verb, ({"op": op} if op is not None else {}) | arrays | NUMBERS.get(rule.verb, {})


class RuleSuite(Suite):
    @each("name", FUNCTIONS)
    def test_functions_refuse_what_the_rule_does(self, name):
        """The error names the function, and the array that is wrong or one that shares the size with it."""
        given = {row[1]: right(name, self.device)[row[1]] for row in arrays_of(name) if "result" not in row[-1]}
        FUNCTIONS[name](**given)
        labels = tuple(f"{name.removesuffix('_inference')}: {label}" for label in given)
        for label, what, wrong in mistakes(name, self.device, results=False):
            with pytest.raises((TypeError, ValueError)) as caught:
                FUNCTIONS[name](**{**given, label: wrong})
            text = str(caught.value).replace("_inference", "")
            assert text.startswith(labels) or "do not broadcast" in text, f"{label}, {what}: {text}"

    @each("name", FUNCTIONS)
    def test_functions_name_what_is_on_another_device(self, name):
        """Each array but the first of the rule on another device: the error names both, and says what to do."""
        there = other_device(self.device)
        given = {row[1]: right(name, self.device)[row[1]] for row in arrays_of(name) if "result" not in row[-1]}
        first, *others = given
        what, here = name.removesuffix("_inference"), given[first].device
        for label in others:
            with pytest.raises(ValueError) as caught:
                FUNCTIONS[name](**{**given, label: given[label].to(there)})
            text = str(caught.value).replace("_inference", "")
            assert text == f"{what}: {label} is on {there}, {first} on {here}; move it with .to(device)"

    @each("name", ["sgd_step", "adam_step"])
    def test_steps_name_what_is_on_another_device(self, name):
        """Any entry of any list, the parameter itself apart where it is the first."""
        there = other_device(self.device)
        lists = [[zeros(3, device=self.device) for _ in range(2)] for _ in RULES[name].names]
        labels = ["parameter", "gradient", "state", "state"]
        for i, entries in enumerate(lists):
            for j in range(2) if i else (1,):
                moved = [list(arrays) for arrays in lists]
                moved[i][j] = entries[j].to(there)
                with pytest.raises(ValueError) as caught:
                    getattr(needle_ndarray, name)(*moved, lr=0.1)
                here = f"parameter 0 on {lists[0][0].device}; move it with .to(device)"
                assert str(caught.value) == f"{name}: {labels[i]} {j} is on {there}, {here}"

    @each("what, call", ON_TWO_DEVICES)
    def test_operands_on_two_devices_are_named(self, what, call):
        there = other_device(self.device)
        given = {"a": zeros((2, 3), device=self.device), "square": zeros((3, 3), device=self.device)}
        given["index"] = zeros(1, "int64", self.device)
        here = given["a"].device
        with pytest.raises(ValueError) as caught:
            call(**given, **{f"{name}_there": a.to(there) for name, a in given.items()})
        text = str(caught.value)
        assert text.startswith(f"{what} on ") and text.endswith("; move one with .to(device)")
        assert str(here) in text and str(there) in text


def other_device(given: Any) -> Any:
    """A device that is not the given one."""
    return device("cpu" if device(given).name == "cpu_numpy" else "cpu_numpy")
