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
from functools import partial
from typing import Any

from needle import Tensor


class Hooks:
    """The hooks of one module, each by a number, in the order they came."""

    def __init__(self) -> None:
        self.before: dict[int, tuple[Callable[..., Any], bool]] = {}
        self.after: dict[int, tuple[Callable[..., Any], bool]] = {}
        self.backward: dict[int, tuple[Callable[..., Any], bool]] = {}
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
        gradients = _Gradients(module, self.backward) if self.backward else None
        if gradients:
            args = gradients.of_inputs(args)
        output = module.forward(*args, **kwargs)
        if gradients:
            output = gradients.of_outputs(output)
        for hook, with_kwargs in list(self.after.values()):
            changed = hook(module, args, kwargs, output) if with_kwargs else hook(module, args, output)
            output = output if changed is None else changed
        return output


class _Gradients:
    """Gradients of the outputs of a call, then of its inputs, for hooks of backward."""

    def __init__(self, module: Any, hooks: dict[int, tuple[Callable[..., Any], bool]]) -> None:
        self.module, self.hooks = module, hooks
        self.out: list[Any] = []
        self.into: list[Any] = []
        self.waiting = 0

    def of_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.into = [None] * len(args)
        made = []
        for i, x in enumerate(args):
            if isinstance(x, Tensor) and x.requires_grad:
                x = x * 1  # a node of this call's own: others who use the tensor are not asked
                x.register_hook(partial(self._known, i))
                self.waiting += 1
            made.append(x)
        return tuple(made)

    def of_outputs(self, output: Any) -> Any:
        several = isinstance(output, (tuple, list))
        outputs = [x * 1 if isinstance(x, Tensor) else x for x in (output if several else [output])]
        self.out = [None] * len(outputs)
        for i, x in enumerate(outputs):
            if isinstance(x, Tensor) and x.requires_grad:
                x.register_hook(partial(self._known_output, i))
        return tuple(outputs) if several else outputs[0]

    def _known_output(self, i: int, grad: Tensor) -> None:
        self.out[i] = grad
        self._alone()

    def _alone(self) -> None:
        """Without an input that needs a gradient, the hooks are called with those of the outputs."""
        if not self.waiting:
            self._call()

    def _known(self, i: int, grad: Any) -> Any:
        self.into[i] = grad
        self.waiting -= 1
        return None if self.waiting else self._call()[i]

    def _call(self) -> list[Any]:
        for hook, _ in list(self.hooks.values()):
            changed = hook(self.module, tuple(self.into), tuple(self.out))
            if changed is not None:
                self.into = list(changed) if isinstance(changed, (tuple, list)) else [changed]
        return self.into


class Handle:
    """What `register_forward_hook` returns: `remove()` takes the hook away, as does the end of a `with` block."""

    def __init__(self, hooks: dict[int, Any], number: int) -> None:
        self.hooks, self.number = hooks, number

    def remove(self) -> None:
        self.hooks.pop(self.number, None)

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.remove()
