"""What optimizers have in common: parameters in groups, which gradients there are, and their state."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import needle_ndarray as nd
from needle.autograd import Tensor, with_gradients
from needle.init import zeros_like
from needle_ndarray import NDArray
from needle_ndarray.extension import active_recorder, bounded, depends, repeat
from needle_nn.moving import move_tensors
from needle_nn.optim.clipping import clip_grad_norm
from needle_nn.optim.options import Option, both_betas, number, tensors
from needle_nn.optim.state import check_complete, keyed, numbered, of_parameters, parts, restored


class Optimizer:
    """Base of the optimizers. A subclass declares its numbers and states, and writes `update`.

    Parameters
    ----------
    params : Tensors, or groups of them with numbers of their own: [{"params": [w], "lr": 0.1}, {"params": [b]}]
    defaults, options : the numbers of every group that does not say otherwise

    `params` lists all parameters, `param_groups` holds the groups, and `t` counts the steps. A number like `lr` can be read and
    set as an attribute: it stands for all groups.

    >>> import needle as ndl
    >>> class SignDescent(ndl.optim.Optimizer):
    ...     '''p -= lr sign(g)'''
    ...     lr = Option()
    ...     def update(self, group, params, arrays, grads):
    ...         for p, g in zip(arrays, grads):
    ...             p -= nd.sign(g) * group["lr"]
    >>> w = ndl.Tensor([3.0, -4.0])
    >>> optimizer = SignDescent([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [2.5, -3.5]
    """

    #: Names of the dicts {parameter: NDArray} that a subclass keeps.
    states: tuple[str, ...] = ()
    #: Whether `update` hands a group to needle_ndarray in one call, which looks after shared memory itself.
    in_one_call = False
    #: Whether an element of a parameter changes by its own gradient and states alone, so that parameters can be cut anywhere. To be
    #: said by the class that writes `update` or `step`; `needle.distributed.sharded` asks.
    elementwise = False

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any] | None = None, **options: Any) -> None:
        options = {**(defaults or {}), **options}
        self.param_groups = self._groups(params, options)
        self.params: list[Tensor] = [p for group in self.param_groups for p in group["params"]]
        self.t = 0
        for name in self.states:
            setattr(self, name, {})

    @cached_property
    def state(self) -> dict[Tensor, dict[str, Any]]:
        """What an optimizer written as for PyTorch keeps: for each parameter a dict of Tensors and numbers."""
        return defaultdict(dict)

    @property
    def defaults(self) -> dict[str, Any]:
        """The numbers of the first group, which a new group has where it gives none."""
        return {name: value for name, value in self.param_groups[0].items() if name not in ("params", "initial_lr")}

    # ---- Groups ----------------------------------------------------------------------------------------------------

    def _groups(self, params: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        what = type(self).__name__
        if isinstance(params, Tensor):
            raise TypeError(f"{what}: expected an iterable of parameters, got {type(params).__name__}")
        given = tensors(what, params)
        if not any(isinstance(entry, dict) for entry in given):
            given = [{"params": given}]
        groups: list[dict[str, Any]] = []
        seen: set[Tensor] = set()
        for i, entry in enumerate(given):
            group = self._group(f"{what}: group {i}" if len(given) > 1 else what, entry, options)
            for p in group["params"]:
                if p in seen:
                    raise ValueError(f"{what}: parameter {len(seen)} comes twice")
                seen.add(p)
            groups.append(group)
        return groups

    def add_param_group(self, group: dict[str, Any]) -> None:
        """One more group, with the first one's numbers where it gives none."""
        options = self.defaults
        made = self._group(f"{type(self).__name__}: group {len(self.param_groups)}", group, options)
        for p in made["params"]:
            if p in set(self.params):
                raise ValueError(f"{type(self).__name__}: a parameter of the new group is in another one already")
        self.param_groups.append(made)
        self.params += made["params"]

    def _group(self, what: str, entry: Any, options: dict[str, Any]) -> dict[str, Any]:
        """{"params": list, number: value, ...}, checked."""
        if isinstance(entry, dict) and "betas" in entry and "beta2" in options:
            given = [entry.get(name, options[name]) for name in ("beta1", "beta2")]
            beta1, beta2 = both_betas(what, given[0], given[1], entry["betas"])
            entry = {**{k: v for k, v in entry.items() if k != "betas"}, "beta1": beta1, "beta2": beta2}
        if not isinstance(entry, dict) or "params" not in entry:
            got = f"one with {', '.join(map(str, entry))}" if isinstance(entry, dict) else type(entry).__name__
            raise TypeError(f"{what}: expected a dict with params, got {got}")
        unknown = [name for name in entry if name not in ("params", "initial_lr") and name not in options]
        if unknown:
            raise ValueError(f"{what}: unknown option {unknown[0]!r}; known: {', '.join(options) or 'none'}")
        given = entry["params"]
        if not isinstance(given, (Tensor, Iterable)):
            raise TypeError(f"{what}: expected an iterable of parameters, got {type(given).__name__}")
        params = [given] if isinstance(given, Tensor) else list(bounded(what, given))
        if not params:
            raise ValueError(f"{what}: no parameters")
        for i, p in enumerate(params):
            if not isinstance(p, Tensor):
                raise TypeError(f"{what}: parameter {i}: expected a Tensor, got {type(p).__name__}")
            if not p.dtype.is_float or p.dtype.is_half:
                raise TypeError(f"{what}: parameter {i} is {p.dtype}, expected float32 or float64")
        start = {"initial_lr": number(what, "initial_lr", entry["initial_lr"])} if "initial_lr" in entry else {}
        return {
            "params": params,
            **{name: self._option(what, name, entry.get(name, options[name])) for name in options},
            **start,
        }

    def _option(self, what: str, name: str, value: Any) -> Any:
        declared = getattr(type(self), name, None)
        return declared.checked(what, value) if isinstance(declared, Option) else value

    # ---- Steps -----------------------------------------------------------------------------------------------------

    def reset_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or make those that there are zeros."""
        for p in self.params:
            if set_to_none or p.grad is None:
                p.grad = None
            else:
                p.grad = zeros_like(p)

    zero_grad = reset_grad

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient; the gradients stay as they are.

        A closure, which computes the loss and its gradients, is called before; its result is returned.
        """
        loss = None if closure is None else closure()
        self._step()
        return loss

    def _step(self) -> None:
        # All are computed (lazy mode) before any parameter changes.
        work = [(group, *with_gradients(group["params"])) for group in self.param_groups]
        if len(work) > 1 or not self.in_one_call:
            work = self._unshared(work)
        if active_recorder() is not None:
            depends(vars(self), "param_groups", *self.states)
            for group in self.param_groups:
                if "maximize" in group:
                    depends(group, "maximize")
        repeat(self._advance)
        for group, params, arrays, grads, fits in work:
            if not fits:
                arrays = [writable(p) for p in params]
                grads = [g.astype(a.dtype, copy=False) for a, g in zip(arrays, grads, strict=True)]
            if group.get("maximize"):
                grads = [-g for g in grads]
            if params:
                self.update(group, params, arrays, grads)

    def _advance(self) -> None:
        self.t += 1

    def update(self, group: dict[str, Any], params: list[Tensor], arrays: list[NDArray], grads: list[NDArray]) -> None:
        """Change the arrays of a group's parameters in place. Subclasses write this; `params` are the keys of their states."""
        raise NotImplementedError(f"{type(self).__name__}.update")

    def _unshared(self, work: list) -> list:
        """Copies of gradients that lie in the memory of a parameter, which may change before they are read."""
        written = {id(p.realize_cached_data()._handle) for p in self.params}
        return [
            (group, params, arrays, [g.copy() if id(g._handle) in written else g for g in grads], fits)
            for group, params, arrays, grads, fits in work
        ]

    def state_of(self, name: str, params: list[Tensor], arrays: list[NDArray], value: float = 0.0) -> list[NDArray]:
        """That state of these parameters; what is new starts at `value`."""
        kept = getattr(self, name)
        for p, a in zip(params, arrays, strict=True) if len(kept) < len(self.params) else ():
            if p not in kept:
                kept[p] = nd.full(a.shape, value, a.dtype, a.device)
        depends(kept)
        return [kept[p] for p in params]

    def to(self, device: Any) -> "Optimizer":
        """Move the parameters, their gradients and all that is kept for them; they stay the objects they are."""
        move_tensors(self.params, device)
        for name in self.states:
            setattr(self, name, {p: array.to(device) for p, array in getattr(self, name).items()})
        return self

    def clip_grad_norm(self, max_norm: float = 0.25) -> float:
        """Scale all gradients together so that their norm is at most max_norm; the norm they had."""
        return clip_grad_norm(self.params, max_norm)

    # ---- State -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Copies of everything that a step depends on, but for the parameters, which are named by their place."""
        groups, start = [], 0
        for group in self.param_groups:
            stop = start + len(group["params"])
            groups.append({**group, "params": list(range(start, stop))})
            start = stop
        own = {name: getattr(self, name) for name in self.states} | of_parameters(self)
        states = {name: numbered(self.params, kept) for name, kept in own.items()}
        kept = {name: [int(i) for i in entries] for name, entries in states.items()}
        rate = (
            {}
            if "lr" in self.param_groups[0] or not isinstance(vars(self).get("lr"), (int, float))
            else {"lr": self.lr}
        )
        return {"t": self.t, "groups": groups, **states, "kept": kept, **rate}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict` of the same parameters in the same order; where it does not fit, change nothing.

        A state that has lost what it kept for a parameter is refused: its steps would start from nothing.
        """
        what = f"{type(self).__name__}.load_state_dict"
        parts(what, state, "t", "groups", *self.states)
        given = [len(group["params"]) for group in state["groups"]]
        own = [len(group["params"]) for group in self.param_groups]
        if given != own:
            raise ValueError(f"{what}: groups of {given} parameters, this optimizer has {own}")
        groups = []
        for old, new in zip(self.param_groups, state["groups"], strict=True):
            new = {**{name: False for name in ("maximize",) if name in old}, **new}  # states from before there was one
            if set(old) - {"initial_lr"} != set(new) - {"initial_lr"}:
                raise ValueError(f"{what}: options {', '.join(sorted(set(old) ^ set(new)))} are in only one of the two")
            # in the order of this optimizer's: a checkpoint has the bytes of a run that was not cut
            order = [name for name in dict.fromkeys((*old, *new)) if name in new and name != "params"]
            numbers = {name: self._option(what, name, new[name]) for name in order}
            groups.append({"params": old["params"], **numbers})
        states = {name: keyed(f"{what}: {name}", self.params, state[name]) for name in self.states}
        others = [name for name in state.get("kept", {}) if name not in self.states and isinstance(state[name], dict)]
        undeclared = {name: restored(f"{what}: {name}", self.params, state[name]) for name in others}
        self._check_complete(what, state, groups, states | undeclared)
        self.param_groups, self.t = groups, int(state["t"])
        for name, kept in (states | undeclared).items():
            setattr(self, name, kept)
        if "lr" in state:
            self.lr = state["lr"]

    def fills(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The states that a step of a group with these numbers always has an entry in, for every parameter with a gradient."""
        return ()

    def _check_complete(
        self, what: str, state: dict[str, Any], groups: list[dict[str, Any]], states: dict[str, dict[Tensor, Any]]
    ) -> None:
        """A ValueError where entries are missing: those the state names, or, in older ones, those that others have."""
        if "kept" in state:
            parts(f"{what}: kept", state["kept"], *self.states)
            for name, kept in states.items():
                check_complete(f"{what}: {name}", self.params, state["kept"][name], kept)
            return
        filled = [name for group in groups for name in self.fills(group)]
        if int(state["t"]) > 0 and filled and not any(states[name] for name in filled):
            raise ValueError(f"{what}: {filled[0]} is empty after {state['t']} steps: the state is incomplete")
        for group in groups:
            names = self.fills(group)
            places = [i for i, p in enumerate(self.params) if p in set(group["params"])]
            seen = [i for i in places if any(self.params[i] in states[name] for name in names)]
            for name in names:
                check_complete(f"{what}: {name}", self.params, seen, states[name])

    def __repr__(self) -> str:
        said = {name: value for name, value in self.defaults.items() if name != "maximize" or value}
        numbers = ", ".join(f"{name}={value}" for name, value in said.items())
        groups = f", {len(self.param_groups)} groups" if len(self.param_groups) > 1 else ""
        return f"{type(self).__name__}({len(self.params)} parameters{groups}, {numbers})"


def writable(p: Tensor) -> NDArray:
    """The array of a parameter; a broadcast view, which cannot be written to, is replaced by a copy first."""
    array = p.realize_cached_data()
    if not array.is_compact() and any(step == 0 and n > 1 for step, n in zip(array.strides, array.shape, strict=True)):
        p.cached_data = array = array.copy()
    return array


__all__ = ["Option", "Optimizer", "writable"]
