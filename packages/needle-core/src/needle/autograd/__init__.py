"""The engine: values that remember how they were made, and reverse mode over them.

A `Value` holds data (an NDArray), the `Op` that made it and the op's inputs. Calling an op computes the result at once, unless
lazy mode is on, and records it where an input requires a gradient. `backward` walks that graph from the end: each op's
`gradient` builds the gradients of its inputs out of ops, so gradients have a graph of their own and can be differentiated again.

Memory: once backward is past a value that only the graph holds, its data is dropped. It can be had again, from its inputs; the
write clock of needle_ndarray (one counter for all writes to all arrays) tells whether these are still what they were.
"""

# The modules, each with what it declares to the others in a .pxd:
#   values       Op, Value, TensorTuple: the nodes          arguments    what ops are given besides values
#   recording    what calling an op does                    dtype_rules  which dtype a tensor gets
#   memory       when data may go                           modes        the switches of a thread
#   topology     the order of the nodes                     operators    the ops behind Python's operators
#   backward     the walk from the end                      arrays       NDArrays in C
#   tensor       the class Tensor                           naming       classes are named after this module
#   tracing      everything that a function computes
# The .pxd files name each other in one direction, values first. The modules call each other both ways (a value that dies tells
# `memory`), so values, which has the class that the others build on, has to be the first to be imported.

import sys as _sys
from types import BuiltinFunctionType as _BuiltinFunctionType
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

import needle_ndarray
from needle.autograd import values  # the first: see above
from needle.autograd.arguments import as_constant, frozen, is_plain_key
from needle.autograd.backward import (
    compute_gradient_of_variables,
    find_topo_sort,
    gradients,
    sum_node_list,
    topo_sort_dfs,
)  # fmt: skip
from needle.autograd.dtype_rules import get_default_dtype, result_dtype, set_default_dtype
from needle.autograd.memory import release_made
from needle.autograd.modes import follows_torch, is_grad_enabled, set_lazy_by_default, set_mode, set_torch_by_default
from needle.autograd.recording import current_op, name_ops
from needle.autograd.tensor import Tensor, assign_product, count, rebuild
from needle.autograd.tracing import constant, data_of, handed_out, is_tracing, keep_in_trace, trace
from needle.autograd.values import (
    Op,
    ScalarOp,
    Slot,
    TensorOp,
    TensorTuple,
    TensorTupleOp,
    Value,
    count_values,
    with_gradients,
)  # fmt: skip
from needle_ndarray import NDArray

if _TYPE_CHECKING:  # at run time needle.torch_names puts them here
    from needle.modes import enable_grad, no_grad, set_grad_enabled
    from needle.torch_names.function import Function
    from needle.torch_names.functions import inference_mode

#: What `compute` of an op may use.
array_api: _Any = needle_ndarray

#: The process-wide default of lazy mode; `needle.lazy_mode()` overrides it within a thread.
LAZY_MODE = False


def grad(
    outputs: _Any,
    inputs: _Any,
    grad_outputs: _Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    only_inputs: bool = True,
) -> tuple[_Any, ...]:
    """PyTorch's `autograd.grad`: gradients of outputs with respect to inputs, as a tuple; no `.grad` is touched.

    `retain_graph` and `only_inputs` change nothing.

    >>> import needle as ndl
    >>> x = ndl.tensor([3.0], requires_grad=True)
    >>> grad(x * x, x)[0].tolist()
    [6.0]
    """
    ys, xs = (list(given) if isinstance(given, (tuple, list)) else [given] for given in (outputs, inputs))
    starts = grad_outputs if grad_outputs is None or isinstance(grad_outputs, (tuple, list)) else [grad_outputs]
    found = gradients(ys, xs, starts)
    unused = [i for i, g in enumerate(found) if g is None]
    if unused and not allow_unused:
        raise RuntimeError(
            f"grad: nothing leads from the outputs to input {unused[0]}; allow_unused=True gives None for it"
        )
    return tuple([g if g is None or create_graph else g.detach() for g in found])


# What `from needle.autograd import *` gives: not the modules.
__all__ = [
    "as_constant", "frozen", "is_plain_key", "compute_gradient_of_variables", "find_topo_sort", "gradients",
    "sum_node_list", "topo_sort_dfs", "get_default_dtype", "result_dtype", "set_default_dtype", "release_made",
    "follows_torch", "is_grad_enabled", "set_lazy_by_default", "set_mode", "set_torch_by_default", "current_op",
    "name_ops", "Tensor", "assign_product", "count", "rebuild", "constant", "data_of", "handed_out", "is_tracing",
    "keep_in_trace", "trace", "Op", "ScalarOp", "Slot", "TensorOp", "TensorTuple", "TensorTupleOp", "Value",
    "count_values", "with_gradients", "NDArray", "LAZY_MODE", "grad",
]  # fmt: skip

# Functions too are known by the module that users import them from, and so are those that unpickle ops.
globals().update({_name: make for _name, make in vars(values).items() if _name.startswith("__pyx_unpickle_")})
for _name, _value in list(globals().items()):
    if isinstance(_value, _BuiltinFunctionType) and _value.__module__.startswith(__name__):
        _value.__module__ = __name__


def __getattr__(name):
    if name == "TENSOR_COUNTER":  # Values alive
        return count_values()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Autograd(_ModuleType):
    """This module: what is assigned to LAZY_MODE is told to the engine, which reads it for every op."""

    def __setattr__(self, name, value):
        if name == "LAZY_MODE":
            set_lazy_by_default(value)
        super().__setattr__(name, value)


_sys.modules[__name__].__class__ = _Autograd
