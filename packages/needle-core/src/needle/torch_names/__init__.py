"""PyTorch's names for what Needle has under another: second spellings, thin, and in one place each.

    both         functions that are methods of Tensor too: unsqueeze, eq, mul, norm, ...
    composed     more of them, put together of several ops: scatter_reduce, tensor_split, nan_to_num, ...
    products     of products: cdist, kron, tensordot, linalg, ...
    ordering     of sorting and selecting: quantile, bucketize, unfold, ...
    methods      methods alone: view, size-like questions, casts, new_zeros, ...
    in_place     methods that write: add_, zero_, normal_, ...
    functions    functions alone: cat, from lists of tensors, devices, save and load
    function     autograd.Function: an operator as a class
    meanings     functions that compat("torch") changes: equal, conv2d, ...
    derivatives  autograd.functional, autograd.gradcheck, testing.assert_close
    devices      cuda.is_available() and the like
    missing      what to say of names that are not there

docs/from_pytorch.md has the differences that stay, and a test runs them.
"""

from needle import autograd, ops
from needle.autograd.tensor import add_methods
from needle.torch_names import (
    both,
    composed,
    derivatives,
    devices,
    functions,
    in_place,
    meanings,
    methods,
    missing,
    ordering,
    products,
)
from needle.torch_names.function import Function

add_methods(methods.SAME | both.METHODS | composed.METHODS | products.METHODS | ordering.METHODS | methods.METHODS)
add_methods(in_place.METHODS | meanings.METHODS)
#: What Tensor has from here.
METHODS = methods.SAME | both.METHODS | composed.METHODS | products.METHODS | ordering.METHODS | methods.METHODS
METHODS |= in_place.METHODS | meanings.METHODS
add_methods({name: missing.Missing(name, hint) for name, hint in missing.METHODS.items()})

vars(autograd).update(Function=Function, **functions.AUTOGRAD)
vars(autograd).update(functional=derivatives.functional, gradcheck=derivatives.gradcheck)

#: What `needle` takes over: `add`, which takes alpha as a method, is the course's as a function.
FUNCTIONS = {
    name: f
    for module in (both, composed, products, ordering, functions, devices)
    for name, f in module.FUNCTIONS.items()
    if name not in ops.__all__
} | meanings.FUNCTIONS
#: Names that `from needle import *` leaves alone: they are those of builtins.
ON_REQUEST = functions.ON_REQUEST
