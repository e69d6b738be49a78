"""Which Tensors of a module are buffers, part of its state, and which are only kept there for a while.

A buffer is what `__init__` sets, what is set from outside and has no graph, and what is registered. It stays one whatever it is
replaced by: running statistics may have a graph for a moment. What `forward` keeps under a name of its own is none, and neither is
anything whose name begins with an underscore, unless it is registered.

>>> import needle as ndl
>>> from needle import nn
>>> class Keeps(nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.count, self._last = ndl.zeros(1), ndl.zeros(1)
...     def forward(self, x):
...         self.count, self._last, self.hidden = self.count + 1, x, x * 2
...         return self.hidden
>>> keeps = Keeps()
>>> keeps(ndl.ones(2)).tolist(), list(keeps.state_dict())
([2.0, 2.0], ['count'])
"""

import sys
from typing import Any

from needle.autograd import Tensor

SAVED, MOVED, NONE = "saved", "moved", "none"  # a buffer in the state_dict, one beside it, no buffer


def has_graph(tensor: Tensor) -> bool:
    """Whether a tensor was computed from others that need a gradient."""
    return not tensor.is_leaf() and tensor.requires_grad


def role(roles: dict[str, str], attribute: str, tensor: Tensor) -> str:
    """SAVED, MOVED or NONE for a Tensor, no Parameter, that an attribute is or holds."""
    if attribute in roles:
        return roles[attribute]
    return NONE if attribute.startswith("_") or has_graph(tensor) else SAVED


def note(module: Any, name: str, value: Any, trained: type) -> None:
    """Before an attribute becomes a Tensor or a container: remember what cannot be seen in it. `trained` is Parameter."""
    roles: dict[str, str] = module.__dict__.get("_roles", {})
    known = roles.get(name)
    if known in (SAVED, MOVED) or name.startswith("_") or isinstance(value, trained) or not _may_keep(value):
        return
    old = module.__dict__.get(name)
    if known is None and _is_state(old, trained):
        said = SAVED if _has_graphs(value) else None
    else:
        said = _said_by(module, value)
    if said is not None:
        module.__dict__.setdefault("_roles", roles)[name] = said
    elif known == NONE:
        del roles[name]


def _said_by(module: Any, value: Any) -> str | None:
    """What follows from who sets a new attribute: NONE in a `forward`; SAVED in `__init__` where a graph would speak against it."""
    frame: Any = sys._getframe(3)
    while frame is not None:
        code = frame.f_code
        if code.co_name in ("forward", "__init__", "__call__") and code.co_argcount:
            first = frame.f_locals.get(code.co_varnames[0])
            if code.co_name == "__init__":
                if first is module:
                    return SAVED if _has_graphs(value) else None
            elif hasattr(first, "named_buffers"):
                return NONE
        frame = frame.f_back
    return None


def _may_keep(value: Any) -> bool:
    """Whether a value is a Tensor, or a container that holds one or is yet to be filled."""
    if isinstance(value, Tensor):
        return True
    entries = value.values() if isinstance(value, dict) else value
    return not value or any(isinstance(entry, (Tensor, list, tuple, dict)) for entry in entries)


def _is_state(value: Any, trained: type) -> bool:
    """Whether an attribute's present value is a buffer, or holds tensors that are."""
    if isinstance(value, Tensor):
        return not isinstance(value, trained) and not has_graph(value)
    if isinstance(value, (list, tuple, dict)):
        return any(_is_state(entry, trained) for entry in (value.values() if isinstance(value, dict) else value))
    return False


def _has_graphs(value: Any) -> bool:
    if isinstance(value, (list, tuple, dict)):
        return any(map(_has_graphs, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Tensor) and has_graph(value)
