"""The example that a model is traced on: which of its arrays are inputs, their names, and batches of other sizes."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from needle.autograd import NDArray, Tensor
from needle_nn.onnx.errors import ExportError

SIZES = (2, 3, 5)  # of the batches a model is traced with: two make a line, the third says whether it is one


@dataclass
class Input:
    """An array of the example, as a host array, and the axis that is its batch (None: it has none)."""

    name: str
    host: np.ndarray
    dtype: str
    device: Any
    axis: int | None


class Example:
    """What a model is called with.

    Parameters
    ----------
    args : a Tensor or an array, or a tuple with one entry for each argument; entries may be tuples themselves, and None
    axes : the axis of the batch, or one for each argument
    """

    def __init__(self, function: Callable[..., Any], args: Any, axes: Any, names: Sequence[str] | None) -> None:
        self.args = args if isinstance(args, tuple) else (args,)
        given = list(axes) if isinstance(axes, (tuple, list)) else [axes] * len(self.args)
        if len(given) != len(self.args):
            raise ValueError(f"onnx.export: {len(given)} entries of batch_axis for {len(self.args)} arguments")
        arguments = _argument_names(function, len(self.args))
        self.inputs = [
            _input(label, x, axis)
            for name, arg, axis in zip(arguments, self.args, given, strict=True)
            for label, x in _arrays(name, arg)
        ]
        if not self.inputs:
            raise ValueError("onnx.export: the example holds no Tensor and no array")
        for i, x in enumerate(self.inputs):
            while x.name in [other.name for other in self.inputs[:i]]:
                x.name += "_"
        if names is not None:
            if len(names) != len(self.inputs) or len(set(names)) != len(names):
                raise ValueError(f"onnx.export: input_names {list(names)}: expected {len(self.inputs)} different ones")
            for x, name in zip(self.inputs, names, strict=True):
                x.name = name
        self.check_batch()

    def check_batch(self) -> None:
        """Raise unless all inputs have a batch of one size."""
        sizes = {}
        for x in self.inputs:
            if x.axis is not None and not -x.host.ndim <= x.axis < x.host.ndim:
                raise ValueError(f"onnx.export: batch_axis {x.axis} of {x.name}, whose shape is {x.host.shape}")
            if x.axis is not None:
                x.axis %= x.host.ndim
                sizes[x.name] = x.host.shape[x.axis]
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{name} {n}" for name, n in sizes.items())
            raise ValueError(
                f"onnx.export: the sizes of the batch differ: {told}; batch_axis names the axis for each argument"
            )
        if 0 in sizes.values():
            raise ValueError("onnx.export: the example is an empty batch")

    @property
    def has_batch(self) -> bool:
        return any(x.axis is not None for x in self.inputs)

    def call(self, size: int | None) -> tuple[tuple[Any, ...], dict[str, Tensor]]:
        """Arguments with a batch of this size (None: as given), and the Tensors among them by name."""
        made = {x.name: _resized(x, size) for x in self.inputs}
        waiting = iter(made.values())
        return tuple([_filled(arg, waiting) for arg in self.args]), made


def _argument_names(function: Callable[..., Any], count: int) -> list[str]:
    """The names of the first arguments of `forward`, or of a function."""
    try:
        known = list(inspect.signature(getattr(function, "forward", function)).parameters.values())
    except (TypeError, ValueError):
        known = []
    plain = [p.name for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in known if p.kind == p.VAR_POSITIONAL), "input")
    single = count == 1 and not plain
    return [plain[i] if i < len(plain) else rest if single else f"{rest}_{i - len(plain)}" for i in range(count)]


def _is_array(x: Any) -> bool:
    return isinstance(x, (Tensor, NDArray, np.ndarray))


def _arrays(name: str, arg: Any) -> Iterator[tuple[str, Any]]:
    """(name, array) of an argument, or of each array in one that is a tuple."""
    if isinstance(arg, (tuple, list)):
        for i, part in enumerate(arg):
            yield from _arrays(f"{name}_{i}", part)
    elif _is_array(arg):
        yield name, arg
    elif not isinstance(arg, (type(None), bool, int, float, str)):
        raise TypeError(f"onnx.export: {name} of the example is a {type(arg).__name__}, expected Tensors and arrays")


def _input(name: str, x: Any, axis: int | None) -> Input:
    tensor = x if isinstance(x, Tensor) else Tensor(x, requires_grad=False)
    return Input(name, tensor.numpy(), str(tensor.dtype), tensor.device, axis if tensor.ndim else None)


def _resized(x: Input, size: int | None) -> Tensor:
    """The input, its examples repeated or left out until there are `size`."""
    host = x.host
    if size is not None and x.axis is not None:
        host = np.take(host, np.arange(size) % host.shape[x.axis], x.axis)
    try:
        return Tensor(host, device=x.device, dtype=x.dtype)
    except TypeError as error:
        raise ExportError(f"input {x.name}: {error}") from error


def _filled(arg: Any, waiting: Iterator[Tensor]) -> Any:
    if isinstance(arg, (tuple, list)):
        return type(arg)([_filled(part, waiting) for part in arg])
    return next(waiting) if _is_array(arg) else arg
