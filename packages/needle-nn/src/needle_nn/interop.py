"""Weights from PyTorch and back, by the type of each module.

PyTorch keeps the weight of a Linear as (out, in), Needle as (in, out); the axes of convolutions differ as well, and the names of
recurrent layers. `from_torch` and `to_torch` know this by the module's class, so that a square weight is transposed as any other.

>>> from needle import nn
>>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1, bias=False))
>>> state = to_torch(model)
>>> {name: array.shape for name, array in state.items()}
{'0.weight': (2, 2), '0.bias': (2,), '2.weight': (1, 2)}
>>> from_torch(model, state) is model
True
"""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

import needle_ndarray as nd
from needle import Tensor
from needle_nn import nn
from needle_nn.weights import Weights, same_numbers

__all__ = ["Pair", "from_torch", "register", "to_torch"]


class Pair(NamedTuple):
    """A tensor of PyTorch's and the one of ours that holds the same numbers."""

    name: str  # PyTorch's
    tensor: Tensor | None  # None: a counter that we do not keep
    axes: tuple[int, ...] | None = None  # of PyTorch's, in our order
    flat: bool = False  # ours has leading axes of size 1

    @property
    def shape(self) -> tuple[int, ...]:
        """PyTorch's."""
        if self.tensor is None:
            return ()
        shape = self.tensor.shape[-1:] if self.flat else self.tensor.shape
        return shape if self.axes is None else tuple([shape[self.axes.index(i)] for i in range(len(shape))])


Rule = Callable[[Any], Iterator[Pair]]
_RULES: dict[type, Rule] = {}


def register(*kinds: type) -> Callable[[Rule], Rule]:
    """A decorator for a function that gives the `Pair`s of a module of these classes; names are those inside the module.

    Modules without a rule have the names and layouts of PyTorch's.
    """

    def keep(rule: Rule) -> Rule:
        for kind in kinds:
            _RULES[kind] = rule
        return rule

    return keep


# ---- Modules ---------------------------------------------------------------------------------------------------


@register(nn.Module)
def _as_it_is(module: nn.Module) -> Iterator[Pair]:
    for name, value, role in module._members():
        if isinstance(value, Tensor) and role == "saved":
            yield Pair(name, value)


def _weight_and_bias(module: Any, axes: tuple[int, ...]) -> Iterator[Pair]:
    yield Pair("weight", module.weight, None if module.as_torch else axes)
    if module.bias is not None:
        yield Pair("bias", module.bias, flat=True)


@register(nn.Linear)
def _linear(module: nn.Linear) -> Iterator[Pair]:
    return _weight_and_bias(module, (1, 0))


@register(nn.Conv1d, nn.ConvTranspose1d)
def _conv1d(module: Any) -> Iterator[Pair]:
    return _weight_and_bias(module, (2, 1, 0))


@register(nn.Conv2d, nn.ConvTranspose2d)
def _conv2d(module: Any) -> Iterator[Pair]:
    return _weight_and_bias(module, (2, 3, 1, 0))


@register(nn.Conv3d, nn.ConvTranspose3d)
def _conv3d(module: Any) -> Iterator[Pair]:
    return _weight_and_bias(module, (2, 3, 4, 1, 0))


@register(nn.BatchNorm1d)
def _batch_norm(module: nn.BatchNorm1d) -> Iterator[Pair]:
    yield from _as_it_is(module)
    if not module.as_torch:
        yield Pair("num_batches_tracked", None)


@register(nn.MultiheadAttention)
def _attention(module: nn.MultiheadAttention) -> Iterator[Pair]:
    for pair in _as_it_is(module):
        turned = pair.name.endswith("weight") and not module.as_torch
        yield pair._replace(axes=(1, 0)) if turned else pair


_RECURRENT = {"W_ih": ("weight_ih", (1, 0)), "W_hh": ("weight_hh", (1, 0)), "bias_ih": ("bias_ih", None)}
_RECURRENT["bias_hh"] = ("bias_hh", None)


@register(nn.RNNCell, nn.GRUCell, nn.LSTMCell)
def _cell(cell: Any) -> Iterator[Pair]:
    return _gates(cell, "")


def _gates(cell: Any, end: str) -> Iterator[Pair]:
    """Gates are in one order in both: i, f, g, o of an LSTM and r, z, n of a GRU."""
    if cell.as_torch:
        yield from [pair._replace(name=pair.name + end) for pair in _as_it_is(cell)]
        return
    for ours, (theirs, axes) in _RECURRENT.items():
        if getattr(cell, ours) is not None:
            yield Pair(theirs + end, getattr(cell, ours), axes)


def _recurrent(module: Any, cells: list[Any]) -> Iterator[Pair]:
    ways = 1 + module.bidirectional
    for i, cell in enumerate(cells):
        yield from _gates(cell, f"_l{i // ways}" + "_reverse" * (i % ways))


@register(nn.RNN)
def _rnn(module: nn.RNN) -> Iterator[Pair]:
    return _recurrent(module, module.rnn_cells)


@register(nn.GRU)
def _gru(module: nn.GRU) -> Iterator[Pair]:
    return _recurrent(module, module.gru_cells)


@register(nn.LSTM)
def _lstm(module: nn.LSTM) -> Iterator[Pair]:
    return _recurrent(module, module.lstm_cells)


def pairs(model: nn.Module, prefix: str = "", around: tuple[nn.Module, ...] = ()) -> Iterator[Pair]:
    """The pairs of a model, under PyTorch's names; a tensor or module that has two names comes twice."""
    rule = next(_RULES[kind] for kind in type(model).__mro__ if kind in _RULES)
    covered = set()  # by the rule: what is in modules below, too
    for pair in rule(model):
        covered.add(id(pair.tensor))
        yield pair._replace(name=prefix + pair.name)
    for name, value, _ in model._members():
        if not isinstance(value, nn.Module) or any(value is module for module in (*around, model)):
            continue
        inner = set(map(id, value.parameters()))
        if not inner or not inner <= covered:
            yield from pairs(value, f"{prefix}{name}.", (*around, model))


# ---- Loading ---------------------------------------------------------------------------------------------------


def from_torch(model: Any, state: Any, strict: bool = True) -> Any:
    """Copy the weights of PyTorch's counterpart of a model into it, or, where one does not fit, change nothing; returns the model.

    Parameters
    ----------
    state : PyTorch's `state_dict()`, arrays by its names, or the path of a safetensors file or of a folder of these
    strict : names that are missing or unexpected are errors; shapes that differ always are

    A file is read tensor by tensor. Tensors that the model ties may be there under one of their names or under all of them; these
    must then be equal. A model that has other names in files says so by `torch_name(name)`, None for what it does not need.
    """
    if isinstance(state, (str, os.PathLike)):
        with Weights(state) as weights:
            return from_torch(model, weights, strict)
    if not isinstance(state, Mapping):
        raise TypeError(
            f"from_torch: expected a state_dict or the path of a safetensors file, got {type(state).__name__}"
        )
    given = _renamed(model, state)
    wanted = _wanted(model)
    _check(model, state, given, wanted, strict)
    there = [[pair for pair in group if pair.name in given and pair.tensor is not None] for group in wanted]
    _check_ties(model, state, given, there)
    for first, *_ in filter(None, there):
        _copy(state, given[first.name], first)
    return model


def _renamed(model: Any, state: Mapping[str, Any]) -> dict[str, str]:
    """{name as in the model: name in the state}, without those it does not need."""
    rename = getattr(model, "torch_name", lambda name: name)
    found: dict[str, str] = {}
    for name in state:
        here = rename(name)
        if here in found:
            raise ValueError(f"from_torch: {found[here]} and {name} both are {here}")
        if here is not None:
            found[here] = name
    return found


def _wanted(model: nn.Module) -> list[list[Pair]]:
    """Pairs of the model, those of one tensor together."""
    groups: dict[Any, list[Pair]] = {}
    for pair in pairs(model):
        groups.setdefault(pair.name if pair.tensor is None else id(pair.tensor), []).append(pair)
    return list(groups.values())


def _check(model: Any, state: Any, given: dict[str, str], wanted: list[list[Pair]], strict: bool) -> None:
    names = {pair.name for group in wanted for pair in group}
    missing = [
        " or ".join([pair.name for pair in group])
        for group in wanted
        if group[0].tensor is not None and not any(pair.name in given for pair in group)
    ]
    other = [
        f"{pair.name} {found} instead of {pair.shape}"
        for group in wanted
        for pair in group
        if pair.tensor is not None and pair.name in given and (found := _shape(state, given[pair.name])) != pair.shape
    ]
    problems = {"other shapes": other}
    if strict:
        unexpected = [name for here, name in given.items() if here not in names]
        problems = {"missing": missing, "unexpected": unexpected, **problems}
    if told := "; ".join(f"{what}: {_listed(found)}" for what, found in problems.items() if found):
        raise ValueError(f"from_torch: {type(model).__name__}: {told}")


def _check_ties(model: Any, state: Any, given: dict[str, str], groups: list[list[Pair]]) -> None:
    for first, *others in filter(None, groups):
        for other in others:
            if not _same(state, given[first.name], given[other.name]):
                kind = type(model).__name__
                raise ValueError(f"from_torch: {first.name} and {other.name} are one tensor in {kind}, but differ here")


def _same(state: Any, one: str, other: str) -> bool:
    """Whether two arrays of one shape hold the same numbers, or both NaN."""
    if isinstance(state, Weights):
        return state.same(one, other)
    return same_numbers(_host(state[one]), _host(state[other]))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _shape(state: Any, name: str) -> tuple[int, ...]:
    return state.shape(name) if isinstance(state, Weights) else tuple(np.shape(_quick(state[name])))


def _quick(value: Any) -> Any:
    """What np.shape can look at without a copy: PyTorch refuses tensors that require gradients."""
    return value.detach() if hasattr(value, "detach") and not isinstance(value, Tensor) else value


def _host(value: Any) -> np.ndarray:
    """A NumPy array of a Tensor, an NDArray, an array, or a tensor of PyTorch, whose half-precision kinds become float32."""
    value = _quick(value)
    if type(value).__module__.partition(".")[0] == "torch":
        value = (value.float() if "float16" in str(value.dtype) else value).cpu()
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def _copy(state: Any, name: str, pair: Pair) -> None:
    target = pair.tensor.realize_cached_data()  # type: ignore[union-attr]
    if isinstance(state, Weights):
        state.copy_to(name, target, pair.axes)
        return
    array = _host(state[name])
    array = array if pair.axes is None else array.transpose(pair.axes)
    target[...] = nd.array(array.reshape(target.shape), target.dtype, target.device)


# ---- And back ---------------------------------------------------------------------------------------------------


def to_torch(model: nn.Module) -> dict[str, np.ndarray]:
    """{name: array} for `load_state_dict` of PyTorch's counterpart of a model: torch.from_numpy makes tensors of the arrays.

    A tensor that the model ties is there under all of its names, and batch norms have a num_batches_tracked of 0.
    """
    found: dict[str, np.ndarray] = {}
    for pair in pairs(model):
        if pair.tensor is None:
            found[pair.name] = np.zeros((), np.int64)
            continue
        array = pair.tensor.numpy().reshape(pair.tensor.shape[-1:] if pair.flat else pair.tensor.shape)
        array = array if pair.axes is None else array.transpose(np.argsort(pair.axes))
        found[pair.name] = np.array(array, order="C")
    return found
