"""Derivatives as functions of functions: `grad`, `vjp`, `jvp`, `jacobian`, `hessian`, `hvp`, and `checkpoint`.

Each calls the function with variables of its own in place of the arguments, so that derivatives are partial, whatever else the
function closes over, and no `.grad` is touched. Arguments are Tensors, NumPy arrays, numbers, or nested lists, tuples and dicts of
them. Results can be differentiated again where an argument requires a gradient, or the function closes over something that does.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import needle_ndarray as nd
from needle import ops
from needle.autograd import Tensor, TensorTuple, find_topo_sort, gradients, is_grad_enabled, release_made
from needle.modes import enable_grad

__all__ = ["checkpoint", "grad", "hessian", "hvp", "jacobian", "jvp", "value_and_grad", "vjp"]


# ---- Trees: nested lists, tuples and dicts --------------------------------------------------------------------------


def _flatten(tree: Any, like: Any = None) -> tuple[list, Any]:
    """The leaves in order, and the structure: None for a leaf, else (type, keys, structures). `like` sets the order of keys."""
    kind: Any
    keys: Any
    if isinstance(tree, dict):
        keys = like[1] if like and like[0] is dict and set(like[1]) == set(tree) else tuple(tree)
        kind, parts = dict, [tree[key] for key in keys]
    elif isinstance(tree, (list, tuple, TensorTuple)):
        kind, parts = type(tree), list(tree)
        keys = tuple(range(len(parts)))
    elif tree is None:
        kind, keys, parts = type(None), (), []
    else:
        return [tree], None
    hints = like[2] if like and like[1] == keys else (None,) * len(parts)
    flat = [_flatten(part, hint) for part, hint in zip(parts, hints, strict=True)]
    return [leaf for leaves, _ in flat for leaf in leaves], (kind, keys, tuple([inner for _, inner in flat]))


def _unflatten(structure: Any, leaves: Any) -> Any:
    """The tree of that structure with leaves from an iterator."""
    if structure is None:
        return next(leaves)
    kind, keys, inner = structure
    parts = [_unflatten(s, leaves) for s in inner]
    if kind is dict:
        return dict(zip(keys, parts, strict=True))
    if kind is type(None):
        return None
    return ops.make_tuple(*parts) if kind is TensorTuple else kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def _map(function: Any, tree: Any) -> Any:
    leaves, structure = _flatten(tree)
    return _unflatten(structure, iter([function(leaf) for leaf in leaves]))


# ---- A call with variables in place of arguments --------------------------------------------------------------------


def _float_tensor(name: str, what: str, x: Any) -> Tensor:
    """x as a Tensor of floats; TypeError for what has no derivative."""
    if not isinstance(x, Tensor):
        if not isinstance(x, (nd.NDArray, np.ndarray, np.generic, int, float)) or isinstance(x, bool):
            raise TypeError(f"{name}: {what} is a {type(x).__name__}, expected a Tensor, an array or a number")
        x = Tensor(x, requires_grad=False)
    if not x.dtype.is_float:
        raise TypeError(f"{name}: {what} is {x.dtype}, and only floats have derivatives")
    return x


class _Call:
    """fn(*args) with the arguments at `argnums` as variables: `xs` (leaves), `ys` (leaves of the result), and their structures."""

    def __init__(self, name: str, fn: Any, argnums: Any, args: tuple, kwargs: dict, has_aux: bool = False) -> None:
        positions = _positions(name, argnums, len(args))
        chosen = [args[i] for i in positions]
        given, self.structure = _flatten(chosen[0] if isinstance(argnums, int) else tuple(chosen))
        given = [_float_tensor(name, f"an argument of {_called(fn)}", x) for x in given]
        recorded = is_grad_enabled()
        self.name = name
        self.joined = recorded and any(x.requires_grad for x in given)  # to a graph outside
        with enable_grad():
            self.xs = [
                ops.Alias()(x) if recorded and x.requires_grad else Tensor.make_const(x, requires_grad=True)
                for x in given
            ]
            self.mine = {id(x) for x in self.xs}
            made = _unflatten(self.structure, iter(self.xs))
            filled = list(args)
            for i, x in zip(positions, (made,) if isinstance(argnums, int) else made, strict=True):
                filled[i] = x
            result = fn(*filled, **kwargs)
            self.aux = None
            if has_aux:
                if not isinstance(result, tuple) or len(result) != 2:
                    raise TypeError(f"{name}: has_aux: {_called(fn)} returned {type(result).__name__}, expected a pair")
                result, self.aux = result
            ys, self.out_structure = _flatten(result)
            self.ys = [_float_tensor(name, f"the result of {_called(fn)}", y) for y in ys]

    def scalar(self) -> Tensor:
        """The result, if it is one number."""
        if self.out_structure is not None or self.ys[0].shape != ():
            shapes = ", ".join([str(y.shape) for y in self.ys])
            raise ValueError(
                f"{self.name}: expected a scalar, the function returned shape {shapes}; sum it, or use jacobian"
            )
        return self.ys[0]

    def pull(self, out_grads: list | None = None) -> list[Tensor]:
        """J^T u"""
        return _gradients(self.ys, self.xs, out_grads)

    def transposed(self) -> tuple[list[Tensor], list[Tensor]]:
        """J^T u and u. It is linear in u, so its gradient at v is J v, whatever u: forward mode from the same definitions."""
        us = [Tensor.make_const(nd.constant_like(y.realize_cached_data(), 0), requires_grad=True) for y in self.ys]
        return self.pull(us), us

    def freed(self, results: Any) -> Any:
        """A tree of results, without the graph unless something outside of this call may ask for it."""
        if is_grad_enabled():
            leaves = [r for r in _flatten(results)[0] if isinstance(r, Tensor) and r.requires_grad]
            if self.joined or any(self.is_outside(node) for node in find_topo_sort(leaves)):
                return results
        return _map(lambda r: r.detach() if isinstance(r, Tensor) and r.requires_grad else r, results)

    def is_outside(self, node: Any) -> bool:
        return node.op is None and node.requires_grad and id(node) not in self.mine

    def like_xs(self, leaves: list) -> Any:
        return _unflatten(self.structure, iter(leaves))

    def like_ys(self, leaves: list) -> Any:
        return _unflatten(self.out_structure, iter(leaves))


def _called(fn: Any) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def _gradients(ys: list, xs: list, out_grads: list | None) -> list[Tensor]:
    """`gradients`, with zeros where there is no path."""
    found = gradients(ys, xs, out_grads)
    return [
        Tensor.make_const(nd.zeros(x.shape, x.dtype, x.device)) if g is None else g
        for x, g in zip(xs, found, strict=True)
    ]


def _positions(name: str, argnums: Any, count: int) -> list[int]:
    chosen = [argnums] if isinstance(argnums, int) else argnums
    if not isinstance(chosen, (tuple, list)) or not all(isinstance(i, int) for i in chosen):
        raise TypeError(f"{name}: argnums {argnums!r}: expected an int or a tuple of ints")
    if not all(-count <= i < count for i in chosen) or len({i % count for i in chosen}) != len(chosen):
        raise ValueError(f"{name}: argnums {argnums} of a call with {count} positional argument{'s' * (count != 1)}")
    return [i % count for i in chosen]


def _fitting(name: str, what: str, given: Any, xs: list, structure: Any, of: str) -> list[Tensor]:
    """The leaves of `given`, which must have the structure and the shapes of `xs`."""
    leaves, found = _flatten(given, structure)
    if found != structure:
        raise ValueError(f"{name}: the {what}s do not have the structure of the {of}s")
    made = [v if isinstance(v, Tensor) else Tensor(v, dtype=x.dtype, device=x.device, requires_grad=False)
            for v, x in zip(leaves, xs, strict=True)]  # fmt: skip
    for v, x in zip(made, xs, strict=True):
        if v.shape != x.shape:
            raise ValueError(f"{name}: a {what} has shape {v.shape}, its {of} {x.shape}")
        if v.dtype != x.dtype:
            raise TypeError(f"{name}: a {what} is {v.dtype}, its {of} {x.dtype}")
    return made


# ---- First order --------------------------------------------------------------------------


def value_and_grad(
    fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """x -> (f(x), df/dx): as `grad`, with the value; where has_aux is True, f returns (y, aux) and this ((y, aux), df/dx).

    >>> value, slope = value_and_grad(lambda x: x * x)(3.0)
    >>> value.item(), slope.item()
    (9.0, 6.0)
    """
    return _value_and_grad("value_and_grad", fn, argnums, has_aux)


def _value_and_grad(name, fn, argnums, has_aux):
    @functools.wraps(fn, updated=())
    def differentiated(*args, **kwargs):
        call = _Call(name, fn, argnums, args, kwargs, has_aux)
        y = call.scalar()
        with enable_grad():
            grads = call.like_xs(call.pull())
        return call.freed(((y, call.aux) if has_aux else y, grads))

    return differentiated


def grad(fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """x -> df/dx, for a function that returns one number.

    A loop that computes new arguments from old ones should start from tensors that require no gradient, or run within
    `no_grad()`: otherwise every step can be differentiated, and is kept for that.

    Parameters
    ----------
    fn : a function of Tensors, or of nested lists, tuples and dicts of them, that returns a Tensor of shape ()
    argnums : the position of the argument to differentiate by, or a tuple of positions; others are passed as they are
    has_aux : whether fn returns (y, aux); the result is then (df/dx, aux)

    >>> cube = lambda x: x**3
    >>> grad(cube)(2.0).item(), grad(grad(cube))(2.0).item()
    (12.0, 12.0)
    >>> grad(lambda p: p["w"] * 3 + p["b"])({"w": 1.0, "b": 2.0})["w"].item()
    3.0
    """
    return _grad("grad", fn, argnums, has_aux)


def _grad(name, fn, argnums, has_aux=False):
    both = _value_and_grad(name, fn, argnums, has_aux)

    @functools.wraps(fn, updated=())
    def differentiated(*args, **kwargs):
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return differentiated


def vjp(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """f(x) and the function u -> u^T J, which returns a tuple with an entry per argument; it may be called repeatedly.

    >>> import needle as ndl
    >>> y, pull = vjp(lambda a, b: a * b, ndl.Tensor([1.0, 2.0]), ndl.Tensor([3.0, 4.0]))
    >>> pull(ndl.Tensor([1.0, 10.0]))[0].tolist()
    [3.0, 40.0]
    """
    call = _Call("vjp", fn, tuple(range(len(primals))), primals, {})

    def pull(out_grads):
        us = _fitting("vjp", "cotangent", out_grads, call.ys, call.out_structure, "result")
        with enable_grad():
            grads = call.like_xs(call.pull(us))
        return call.freed(grads)

    return call.freed(call.like_ys(call.ys)), pull


def jvp(fn: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """f(x) and J v: the derivative of f at the primals x in the direction of the tangents v.

    Parameters
    ----------
    fn : a function of Tensors (or trees of them) that returns a Tensor, or a tree of them
    primals : the arguments, a tuple or list; or the only one
    tangents : a direction, of the same structure and shapes

    >>> import needle as ndl
    >>> y, slope = jvp(lambda x: x * x, ndl.Tensor([1.0, 2.0]), ndl.Tensor([1.0, 10.0]))
    >>> slope.tolist()
    [2.0, 40.0]
    """
    call, vs, _ = _at("jvp", fn, primals, tangents)
    with enable_grad():
        pushed = _gradients(*call.transposed(), vs)
    return call.freed((call.like_ys(call.ys), call.like_ys(pushed)))


def _at(name: str, fn: Any, primals: Any, tangents: Any) -> tuple[_Call, list[Tensor], bool]:
    """The call at the primals, the leaves of the tangents, and whether there was one primal only, not in a tuple."""
    single = not isinstance(primals, (tuple, list))
    args = (primals,) if single else tuple(primals)
    directions = (tangents,) if single else tuple(tangents) if isinstance(tangents, (tuple, list)) else tangents
    call = _Call(name, fn, tuple(range(len(args))), args, {})
    return call, _fitting(name, "tangent", directions, call.xs, call.structure, "primal"), single


# ---- Matrices and second order --------------------------------------------------------------------------


def jacobian(fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """x -> dy_i/dx_j, of shape y.shape + x.shape; for trees, the tree of y with the tree of x in place of every leaf.

    Row by row (reverse mode), or column by column (forward mode) where x has fewer elements than y.

    >>> import needle as ndl
    >>> jacobian(lambda x: x * x)(ndl.Tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    return _jacobian("jacobian", fn, argnums)


def _jacobian(name, fn, argnums):
    @functools.wraps(fn, updated=())
    def differentiated(*args, **kwargs):
        call = _Call(name, fn, argnums, args, kwargs)
        with enable_grad():
            if sum([x.size for x in call.xs]) >= sum([y.size for y in call.ys]):
                blocks = [_rows(y, call.xs) for y in call.ys]
            else:
                pulled, us = call.transposed()
                columns = [_rows(g, us) for g in pulled]  # per x and y: x.shape + y.shape
                blocks = [
                    [_swapped(c, y.ndim) for c in row] for y, row in zip(us, zip(*columns, strict=True), strict=True)
                ]
        return call.freed(call.like_ys([call.like_xs(row) for row in blocks]))

    return differentiated


def _rows(y: Tensor, xs: list) -> list[Tensor]:
    """dy/dx for every x, of shape y.shape + x.shape: a gradient per element of y, stacked."""
    rows = []
    for i in range(y.size):
        unit = nd.zeros((y.size,), y.dtype, y.device)
        unit[i] = 1
        rows.append(_gradients([y], xs, [Tensor.make_const(unit.reshape(y.shape))]))
    if not rows:
        return [Tensor.make_const(nd.zeros(y.shape + x.shape, x.dtype, x.device)) for x in xs]
    return [ops.stack(parts).reshape(y.shape + x.shape) for parts, x in zip(zip(*rows, strict=True), xs, strict=True)]


def _swapped(a: Tensor, last: int) -> Tensor:
    """a with its `last` last axes in front."""
    return ops.permute(a, (*range(a.ndim - last, a.ndim), *range(a.ndim - last)))


def hessian(fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """x -> d2f/(dx_i dx_j), of shape x.shape + x.shape, for a function that returns one number.

    >>> import needle as ndl
    >>> hessian(lambda x: x[0] ** 2 * x[1])(ndl.Tensor([3.0, 5.0])).tolist()
    [[10.0, 6.0], [6.0, 0.0]]
    """
    return _jacobian("hessian", _grad("hessian", fn, argnums), argnums)


def hvp(fn: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    """H v: the Hessian of f at the primals times the tangents, without the Hessian.

    Parameters
    ----------
    fn : a function of Tensors (or trees of them) that returns a Tensor of shape ()
    primals : the arguments, a tuple or list, and then so is the result; or the only one
    tangents : what to multiply by, of the same structure and shapes

    >>> import needle as ndl
    >>> hvp(lambda x: (x**3).sum(), ndl.Tensor([1.0, 2.0]), ndl.Tensor([1.0, 10.0])).tolist()
    [6.0, 120.0]
    """
    call, vs, single = _at("hvp", fn, primals, tangents)
    call.scalar()
    with enable_grad():
        products = call.like_xs(_gradients(call.pull(), call.xs, vs))  # H is symmetric: reverse over reverse
    return call.freed(products[0] if single else products)


# ---- Memory --------------------------------------------------------------------------


def checkpoint(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """fn(*args, **kwargs), keeping only the result: what was computed on the way is dropped, and computed again for backward.

    A chain of n layers in segments of k keeps n/k + k values instead of n, for one more forward pass.

    >>> import needle as ndl
    >>> x = ndl.Tensor([0.5] * 10000)
    >>> y = checkpoint(lambda x: ndl.exp(ndl.sin(x)), x)
    >>> y.inputs[0].cached_data is None  # sin(x)
    True
    >>> y.backward()
    >>> round(x.grad[0].item(), 4)
    1.4174
    """
    return release_made(functools.partial(fn, **kwargs), args)
