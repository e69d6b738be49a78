"""`vmap`: a function of one example becomes a function of a batch.

The function is called once, for the first example, and its trace says which ops it is made of. These are then applied to the whole
batch by the rules of `needle.batching.rules`, and recorded like any others, so that the result can be differentiated.
"""

import functools
from typing import Any

import numpy as np

from needle import ops
from needle.autograd import Tensor, TensorTuple, Value, data_of, trace
from needle.batching import rules
from needle.modes import lazy_mode
from needle.ops.helpers import Key
from needle.transforms import _flatten, _unflatten
from needle_ndarray import NDArray


def vmap(fn: Any, in_dims: Any = 0, out_dims: Any = 0) -> Any:
    """A function that calls fn for every example of a batch, in one go.

    Parameters
    ----------
    fn : a function of Tensors, or of nested lists, tuples and dicts of them, that may use `grad` and the like inside
    in_dims : the axis of the examples: an int for all arguments, or a tuple with an int, or None, for each; None: the same for all
    out_dims : where the examples' axis goes in the results

    Random numbers are drawn once, and are the same for all examples. What the function does cannot depend on the values of an
    example (`if x > 0`, `x.numpy()`): use `where`.

    >>> import needle as ndl
    >>> rows, v = ndl.Tensor([[1.0, 2.0], [3.0, 4.0]]), ndl.Tensor([1.0, 10.0])
    >>> vmap(lambda x, y: (x * y).sum(), in_dims=(0, None))(rows, v).tolist()
    [21.0, 43.0]
    >>> vmap(ndl.grad(lambda x: (x**3).sum()))(rows).tolist()
    [[3.0, 12.0], [27.0, 48.0]]
    """

    @functools.wraps(fn, updated=())
    def mapped(*args, **kwargs):
        batch = _Batch(args, in_dims)
        with lazy_mode(False):
            result, happened = trace(lambda: fn(*batch.example, **kwargs), ())
            leaves, structure = _flatten(result)
            made = batch.run(happened, leaves)
        return _unflatten(structure, iter([_moved(y, 0, out_dims) for y in made]))

    return mapped


def _moved(x: Tensor, old: int, new: int) -> Tensor:
    """An axis in another place."""
    if not isinstance(new, int) or not -x.ndim <= new < x.ndim:
        raise ValueError(f"vmap: axis {new} of shape {x.shape}")
    old, new = old % x.ndim, new % x.ndim
    if old == new:
        return x
    order = [i for i in range(x.ndim) if i != old]
    order.insert(new, old)
    return ops.permute(x, tuple(order))


class _Batch:
    """The arguments with the batch as axis 0, the first example of them, and what follows from both."""

    def __init__(self, args: tuple, in_dims: Any) -> None:
        dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(args)
        if len(dims) != len(args) or not all(d is None or isinstance(d, int) for d in dims):
            raise ValueError(f"vmap: in_dims {in_dims!r} for {len(args)} arguments: expected an int or None for each")
        sizes: set[int] = set()
        self.values: dict[
            int, tuple[Any, bool]
        ] = {}  # of a value of the example, by id: that of the batch, whether it has one
        self.owners: dict[int, Value] = {}  # of arrays, by id
        self.kept: list[Any] = []
        example = []
        for arg, dim in zip(args, dims, strict=True):
            if dim is None:
                example.append(arg)
                continue
            leaves, structure = _flatten(arg)
            example.append(_unflatten(structure, iter([self._first(x, dim, sizes) for x in leaves])))
        if len(sizes) != 1:
            raise ValueError(
                f"vmap: batches of {sorted(sizes)} examples: expected one size, with an axis for each argument"
            )
        (self.n,) = sizes
        self.example = tuple(example)

    def _first(self, x: Any, dim: int, sizes: set[int]) -> Tensor:
        """The first example of a leaf, which is remembered."""
        if not isinstance(x, Tensor):
            if not isinstance(x, (np.ndarray, NDArray)):
                raise TypeError(
                    f"vmap: an argument is a {type(x).__name__}, expected a Tensor; give in_dims=None for it"
                )
            x = Tensor(x, requires_grad=False)
        if not -x.ndim <= dim < x.ndim:
            raise ValueError(f"vmap: axis {dim} of shape {x.shape}")
        if x.shape[dim] == 0:
            raise ValueError(f"vmap: axis {dim} of shape {x.shape}: expected one example or more")
        sizes.add(x.shape[dim])
        whole = _moved(x, dim, 0)
        single = Tensor.make_const(data_of(whole)[0].copy(), requires_grad=x.requires_grad and x.dtype.is_float)
        self._know(single, whole, True)
        return single

    def _know(self, single: Value, value: Any, batched: bool) -> None:
        self.values[id(single)] = value, batched
        self.kept.append(single)
        if isinstance(single, Tensor):
            self.owners.setdefault(id(data_of(single)), single)

    def run(self, happened: list, outputs: list) -> list[Tensor]:
        """The results of the batch, from what happened for one example."""
        for event in happened:
            if isinstance(event, tuple):
                self._refuse(*event)
            else:
                self._apply(event)
        made = []
        for y in outputs:
            if not isinstance(y, Tensor):
                y = Tensor(y, requires_grad=False)
            made.append(rules.spread(*self._of(y), self.n))
        return made

    def _of(self, single: Value) -> tuple[Any, bool]:
        """(value of the batch, True), or (the value itself, False) where it is the same for all examples."""
        known = self.values.get(id(single))
        if known is None and single.op is None and isinstance(single, Tensor):
            owner = self.owners.get(id(data_of(single)))
            if (
                owner is not None
            ):  # a leaf that shares its array with something known: `x.detach()`, a variable of `grad`
                value, batched = self.values[id(owner)]
                stops = owner.requires_grad and not single.requires_grad
                return (value.detach() if stops else value), batched
        return (single, False) if known is None else known

    def _apply(self, node: Value) -> None:
        """The op of a node of the example, for the batch."""
        if node.op is None:
            return
        found = [self._of(x) for x in node.inputs]
        inputs, batched = tuple([value for value, _ in found]), tuple([b for _, b in found])
        places = self._places(node.op)
        if any(b for _, b in places):
            self._know(node, self._by_positions(node.op, inputs, batched, places), True)
        elif any(batched):
            self._know(node, rules.apply(node.op, node.inputs, inputs, batched, self.n), True)

    def _places(self, op: Any) -> list[tuple[Any, bool]]:
        """The arrays in the index of an op, as `_of` gives them."""
        key = getattr(op, "key", None)
        items = key if isinstance(key, tuple) else (key,)
        owners = [self.owners.get(id(item)) if isinstance(item, NDArray) else None for item in items]
        return [(item, False) if o is None else self.values[id(o)] for item, o in zip(items, owners, strict=True)]

    def _by_positions(self, op: Any, inputs: tuple, batched: tuple, places: list) -> Any:
        """An indexing op whose index differs from example to example."""
        results = []
        for i in range(self.n):
            key = Key([data_of(value)[i].copy() if b else value for value, b in places])
            single = type(op)(key, op.shape) if isinstance(op, ops.AddAt) else type(op)(key)
            results.append(single(*[rules.part(x, i) if b else x for x, b in zip(inputs, batched, strict=True)]))
        return rules.stacked(results)

    def _refuse(self, what: str, value: Value, line: tuple[str, int]) -> None:
        """Data that was looked at, or written to, is that of the first example only."""
        _, batched = self._of(value) if not isinstance(value, TensorTuple) else (None, id(value) in self.values)
        if batched:
            did = "looks at the values of an example" if what == "read" else "writes into an example"
            raise ValueError(
                f"vmap: the function {did} at {line[0]}:{line[1]}, which is not the same for all: use ops such as where"
            )


__all__ = ["vmap"]
