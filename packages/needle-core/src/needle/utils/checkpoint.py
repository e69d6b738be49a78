"""`needle.checkpoint`, where PyTorch has it."""

from typing import Any

from needle import transforms


def checkpoint(function: Any, *args: Any, use_reentrant: Any = None, **settings: Any) -> Any:
    """`needle.checkpoint(function, *args)`: what is computed on the way is dropped, and computed again for backward."""
    return transforms.checkpoint(function, *args, **settings)


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: Any = None) -> Any:
    """Functions one after the other, in so many parts, each a `checkpoint`."""
    functions = list(functions)
    size = max(len(functions) // segments, 1)
    cuts = [i * size for i in range(min(segments, len(functions)))]
    for start, stop in zip(cuts, [*cuts[1:], len(functions)], strict=True):

        def part(x: Any, start: int = start, stop: int = stop) -> Any:
            for function in functions[start:stop]:
                x = function(x)
            return x

        input = checkpoint(part, input)
    return input
