"""PyTorch's names for what Needle has under another: second spellings, thin, and in one place each.

    both         functions that are methods of Tensor too: unsqueeze, eq, mul, norm, ...
    composed     more of them, put together of several ops: scatter_reduce, tensor_split, nan_to_num, ...
    methods      methods alone: view, size-like questions, casts, new_zeros, ...
    in_place     methods that write: add_, zero_, normal_, ...
    functions    functions alone: cat, from lists of tensors, devices, save and load
    function     autograd.Function: an operator as a class
    devices      cuda.is_available() and the like
    missing      what to say of names that are not there

docs/from_pytorch.md has the differences that stay, and a test runs them.
"""

from needle import autograd, ops
from needle.autograd.tensor import add_methods
from needle.torch_names import both, composed, devices, functions, in_place, methods, missing
from needle.torch_names.function import Function

add_methods(methods.SAME | both.METHODS | composed.METHODS | methods.METHODS | in_place.METHODS)
add_methods({name: missing.Missing(name, hint) for name, hint in missing.METHODS.items()})

vars(autograd).update(Function=Function, **functions.AUTOGRAD)

#: What `needle` takes over: `add`, which takes alpha as a method, is the course's as a function.
FUNCTIONS = {
    name: f
    for name, f in (both.FUNCTIONS | composed.FUNCTIONS | functions.FUNCTIONS).items()
    if name not in ops.__all__
}
#: Names that `from needle import *` leaves alone: they are those of builtins.
ON_REQUEST = functions.ON_REQUEST
