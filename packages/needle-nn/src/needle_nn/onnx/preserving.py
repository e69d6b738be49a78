"""A model in evaluation, as it was before afterwards: modes, attributes, tensors, and the state of the random generators."""

import random as python_random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import needle.random
from needle_nn.nn import Module


@contextmanager
def evaluated(model: Any) -> Iterator[None]:
    """Run the block with a module in eval mode; a function that is no module is left as it is."""
    randomness = needle.random.get_state(), np.random.get_state(), python_random.getstate()  # noqa: NPY002
    modules = [part for _, part in model.named_modules()] if isinstance(model, Module) else []
    attributes = [dict(part.__dict__) for part in modules]
    tensors = [tensor for _, tensor in model._tensors()] if modules else []
    arrays = [tensor.realize_cached_data() for tensor in tensors]
    kept = [(array.version, array.copy()) for array in arrays]
    for part in modules:
        part.training = False
    try:
        yield
    finally:
        for part, before in zip(modules, attributes, strict=True):
            part.__dict__.clear()
            part.__dict__.update(before)
        for tensor, array, (version, copy) in zip(tensors, arrays, kept, strict=True):
            if tensor.realize_cached_data() is not array:
                tensor.cached_data = array
            if array.version != version:
                array[...] = copy
        needle.random.set_state(randomness[0])
        np.random.set_state(randomness[1])  # noqa: NPY002
        python_random.setstate(randomness[2])
