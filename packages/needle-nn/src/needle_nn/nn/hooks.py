"""Functions that a module calls before and after its `forward`.

>>> import needle as ndl
>>> from needle import nn
>>> layer = nn.ReLU()
>>> handle = layer.register_forward_hook(lambda module, args, output: output * 10)
>>> layer(ndl.Tensor([2.0])).tolist()
[20.0]
>>> handle.remove()
>>> layer(ndl.Tensor([2.0])).tolist()
[2.0]
"""

from collections.abc import Callable
from typing import Any


class Hooks:
    """The hooks of one module, each by a number, in the order they came."""

    def __init__(self) -> None:
        self.before: dict[int, tuple[Callable[..., Any], bool]] = {}
        self.after: dict[int, tuple[Callable[..., Any], bool]] = {}
        self.count = 0

    def add(self, hooks: dict[int, Any], hook: Any, with_kwargs: bool, prepend: bool) -> "Handle":
        if not callable(hook):
            raise TypeError(f"a forward hook is a function, got a {type(hook).__name__}")
        self.count += 1
        entries = {self.count: (hook, with_kwargs)}
        others = dict(hooks)
        hooks.clear()
        hooks.update({**entries, **others} if prepend else {**others, **entries})
        return Handle(hooks, self.count)

    def call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """forward, between the hooks: those before may replace the arguments, those after the output."""
        for hook, with_kwargs in list(self.before.values()):
            changed = hook(module, args, kwargs) if with_kwargs else hook(module, args)
            if changed is not None and with_kwargs:
                args, kwargs = changed
            elif changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        output = module.forward(*args, **kwargs)
        for hook, with_kwargs in list(self.after.values()):
            changed = hook(module, args, kwargs, output) if with_kwargs else hook(module, args, output)
            output = output if changed is None else changed
        return output


class Handle:
    """What `register_forward_hook` returns: `remove()` takes the hook away, as does the end of a `with` block."""

    def __init__(self, hooks: dict[int, Any], number: int):
        self.hooks, self.number = hooks, number

    def remove(self) -> None:
        self.hooks.pop(self.number, None)

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.remove()
