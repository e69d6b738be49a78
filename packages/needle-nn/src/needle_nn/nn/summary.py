"""A table of what a module is made of."""

from typing import Any

from needle import init
from needle.autograd import Tensor
from needle.modes import no_grad
from needle_nn.nn.module import Module


def summary(module: Module, *input_shapes: tuple[int, ...]) -> str:
    """Run zeros of these shapes, batch included, through a module in evaluation; one line per module.

    >>> from needle import nn
    >>> print(summary(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (1, 4)))
    layer        output  parameters
    Sequential   (1, 2)          58
      0: Linear  (1, 8)          40
      1: ReLU    (1, 8)           0
      2: Linear  (1, 2)          18
    58 parameters, 58 trained, 232 bytes
    """
    modules = dict(module.named_modules())
    modes = {name: part.training for name, part in modules.items()}
    outputs: dict[int, str] = {}
    tensors = [tensor for _, tensor in module._tensors()]
    like: dict[str, Any] = {"device": tensors[0].device, "dtype": tensors[0].dtype} if tensors else {}
    own = {name: part.__dict__["forward"] for name, part in modules.items() if "forward" in part.__dict__}
    for part in modules.values():
        part.__dict__["forward"] = _noting(part, outputs)  # an attribute of the object hides the method of its class
    try:
        with no_grad():
            module.eval()(*[init.zeros(shape, **like) for shape in input_shapes])
    finally:
        for name, part in modules.items():
            del part.__dict__["forward"]
            part.__dict__.update({"forward": own[name]} if name in own else {}, training=modes[name])
    rows = [("layer", "output", "parameters")]
    for name, part in modules.items():
        above = [other for other in modules if name.startswith(f"{other}.") or (name and not other)]
        label = f"{name.removeprefix(above[-1]).lstrip('.')}: " if above else ""
        indented = "  " * len(above) + label + type(part).__name__
        rows.append((indented, outputs.get(id(part), "not called"), f"{_count(part.parameters()):,}"))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [f"{a:{widths[0]}}  {b:{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows]
    parameters = module.parameters()
    trained = _count([p for p in parameters if p.requires_grad])
    size = sum(p.nbytes for p in parameters)
    return "\n".join([*lines, f"{_count(parameters):,} parameters, {trained:,} trained, {size:,} bytes"])


def _noting(part: Module, outputs: dict[int, str]):
    """The forward of a module, which also notes the shape of what it returns."""
    forward = part.forward

    def noted(*args, **kwargs):
        y = forward(*args, **kwargs)
        outputs[id(part)] = _shapes(y)
        return y

    return noted


def _shapes(y) -> str:
    """The shape of a tensor, or those of nested tuples of tensors."""
    if isinstance(y, Tensor):
        return str(y.shape)
    return (
        ", ".join([_shapes(part) for part in y if part is not None])
        if isinstance(y, (tuple, list))
        else type(y).__name__
    )


def _count(parameters) -> int:
    return sum(p.size for p in parameters)
