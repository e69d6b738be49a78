"""What to say of PyTorch's names that are not here: what is here instead."""

from typing import Any

_ARRAYS = "arrays have it: x.realize_cached_data()"
_SHAPE = "a tensor keeps its shape; the method without _ gives a new one"
_NUMPY = "NumPy has it for x.numpy(); there is no derivative"
_NO_COMPLEX = "there are no complex numbers"
_NO_SPARSE = "there are no sparse tensors"
_WRITE = "x[index] = values writes at positions"

METHODS: dict[str, str] = {
    **dict.fromkeys(["as_strided", "stride", "storage", "untyped_storage", "data_ptr"], _ARRAYS + " with its strides and _handle"),
    **dict.fromkeys(["t_", "transpose_", "squeeze_", "unsqueeze_", "resize_", "swapaxes_"], _SHAPE),
    **dict.fromkeys(["index_put_", "put_"], _WRITE),
    **dict.fromkeys(["svd", "qr", "det", "inverse", "cholesky", "pinverse", "logdet", "matrix_exp"], _NUMPY),
    **dict.fromkeys(["histc", "mode", "cummax", "cummin", "logcumsumexp"], _NUMPY),
    **dict.fromkeys(["conj", "real", "imag", "angle", "is_complex"], _NO_COMPLEX),
    **dict.fromkeys(["to_sparse", "to_dense", "coalesce"], _NO_SPARSE),
    **dict.fromkeys(["map_", "apply_"], "needle.operator makes an operator of a function on arrays"),
    **dict.fromkeys(["geometric_", "log_normal_", "cauchy_"], "normal_ and uniform_ are there"),
    "element_size": "x.dtype.itemsize is the number of bytes of an element",
    "register_post_accumulate_grad_hook": "register_hook(f) calls f(grad) when the gradient is known",
    "pin_memory": "memory of the host needs no pinning here",
    "share_memory_": "threads share memory already, processes get copies",
}  # fmt: skip

FUNCTIONS: dict[str, str] = {
    "jit": "needle.capture records a function, needle.onnx writes a model to a file",
    "fft": _NUMPY,
    "sparse": _NO_SPARSE,
    **dict.fromkeys(["complex64", "complex128", "cfloat", "view_as_complex", "polar"], _NO_COMPLEX),
    **dict.fromkeys(["int8", "int16", "short", "uint16", "uint32", "uint64"], "uint8, int32 and int64 are the integer dtypes"),
    "set_default_tensor_type": "needle.set_default_dtype('float64') sets what Python's floats become",
    "set_default_device": "NEEDLE_BACKEND chooses the default device, device= another one",
    "use_deterministic_algorithms": "results are the same in every run and for every number of threads",
    "seed": "needle.random.seed(s) and needle.manual_seed(s) begin random numbers again",
    "get_rng_state": "needle.random.get_state() is the state of needle's own generator",
    "set_rng_state": "needle.random.set_state(s) goes on from a state of needle's own generator",
    **dict.fromkeys(["short", "char"], "int32 and int64 are the integers with a sign"),
    "digitize": "needle.bucketize(values, bounds) is it",
    **{name: hint for name, hint in METHODS.items() if name[-1] != "_"},
}  # fmt: skip


class Missing:
    """In place of a method: looking it up says what there is instead; for `hasattr` there is nothing."""

    def __init__(self, name: str, hint: str) -> None:
        self.name, self.hint = name, hint

    def __get__(self, tensor: Any, owner: Any) -> Any:
        raise AttributeError(f"Tensor has no {self.name!r}; {self.hint}", name=self.name)
