"""What to say of PyTorch's names that are not here: what is here instead."""

from typing import Any

_ARRAYS = "arrays have it: x.realize_cached_data()"
_SHAPE = "a tensor keeps its shape; the method without _ gives a new one"
_NUMPY = "NumPy has it for x.numpy(); there is no derivative"
_NO_COMPLEX = "there are no complex numbers"
_NO_SPARSE = "there are no sparse tensors"
_WRITE = "x[index] = values writes at positions"

_LAYERS = "needle.nn.functional has it"
_STREAMS = "there are no streams: operators are done when they return, or when their result is read"

#: Methods that write, and whose functions are there.
_WRITERS = """absolute acosh addmv addbmm addr arccos arccosh arcsin arcsinh arctan arctan2 arctanh asinh atan2 atanh baddbmm
    bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor deg2rad erfc exp2 fix float_power frac
    greater greater_equal hypot less less_equal logical_and logical_not logical_or logical_xor logit not_equal rad2deg sgn
    xlogy""".split()

METHODS: dict[str, str] = {
    **{f"{name}_": f"x.copy_({'f' if name[:3] == 'add' else 'x.' + name}(...)) writes what is computed" for name in _WRITERS},
    **dict.fromkeys(["as_strided", "stride", "storage", "untyped_storage", "data_ptr"], _ARRAYS + " with its strides and _handle"),
    **dict.fromkeys(["t_", "transpose_", "squeeze_", "unsqueeze_", "resize_", "swapaxes_"], _SHAPE),
    "put_": _WRITE,
    **dict.fromkeys(["svd", "qr", "det", "inverse", "cholesky", "pinverse", "logdet", "matrix_exp"], _NUMPY),
    **dict.fromkeys(["histc", "mode", "cummax", "cummin", "logcumsumexp"], _NUMPY),
    **dict.fromkeys(["conj", "real", "imag", "angle", "is_complex"], _NO_COMPLEX),
    **dict.fromkeys(["to_sparse", "to_dense", "coalesce"], _NO_SPARSE),
    **dict.fromkeys(["map_", "apply_"], "needle.operator makes an operator of a function on arrays"),
    **dict.fromkeys(["geometric_", "log_normal_", "cauchy_"], "normal_ and uniform_ are there"),
    **dict.fromkeys(["addmv", "addbmm", "addr"], "a + b @ c is it"),
    **dict.fromkeys(["H", "mH", "adjoint"], "x.mT swaps the last two axes; there are no complex numbers"),
    **{f"arc{name}h": f"x.a{name}h() is it" for name in ("cos", "sin", "tan")},
    **dict.fromkeys(["isposinf", "isneginf"], "x == math.inf within compat('torch'), or x.eq(math.inf)"),
    **dict.fromkeys(["nanmedian", "nanquantile", "histogram", "corrcoef", "msort"], _NUMPY),
    **dict.fromkeys(
        ["lgamma", "digamma", "polygamma", "mvlgamma", "erfinv", "i0", "igamma", "igammac"],
        "SciPy has it for x.numpy()",
    ),
    **dict.fromkeys(["lcm", "gcd", "frexp", "ldexp", "nextafter", "copysign", "heaviside", "sinc", "logaddexp2"], _NUMPY),
    **dict.fromkeys(["slogdet", "solve", "lstsq", "lu", "lu_solve", "eig", "symeig", "cholesky_solve", "triangular_solve"], _NUMPY),
    **dict.fromkeys(["stft", "istft"], _NUMPY),
    **dict.fromkeys(["hsplit", "vsplit", "dsplit"], "x.tensor_split(n, dim=...) is it"),
    **dict.fromkeys(["index_reduce", "index_reduce_"], "index_add and scatter_reduce are there"),
    **dict.fromkeys(["diagonal_scatter", "select_scatter", "slice_scatter"], "y = x.clone(); y[index] = values is it"),
    **dict.fromkeys(["put", "renorm", "renorm_"], "x[index] = values writes at positions, x * factor scales"),
    **dict.fromkeys(["char", "short"], "int32 and int64 are the integers with a sign"),
    **dict.fromkeys(["hardshrink", "prelu"], _LAYERS),
    "sum_to_size": "x.sum(dim, keepdim=True) is it",
    **dict.fromkeys(["resize", "resize_as", "resize_as_", "set_"], "a tensor keeps its shape; x.reshape(shape) gives a new one"),
    **dict.fromkeys(["retains_grad", "volatile"], "requires_grad, retain_grad() and no_grad() are there"),
    **dict.fromkeys(["is_shared", "is_pinned", "record_stream", "storage_offset", "storage_type"], _ARRAYS),
    "is_signed": "x.dtype is not needle.uint8 is it",
    "is_inference": "needle.is_grad_enabled() says whether anything is recorded",
    "fill": "needle.full_like(x, value) is it",
    "diagflat": "x.ravel().diag() is it",
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
    **dict.fromkeys("""adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout avg_pool1d bilinear celu
        binary_cross_entropy_with_logits
        conv_transpose1d cosine_embedding_loss cosine_similarity embedding_bag group_norm hardshrink hinge_embedding_loss
        instance_norm kl_div margin_ranking_loss max_pool1d pairwise_distance pixel_shuffle pixel_unshuffle poisson_nll_loss
        prelu""".split(), _LAYERS),
    **dict.fromkeys(["gru_cell", "lstm_cell"], "nn.GRUCell and nn.LSTMCell are there"),
    **dict.fromkeys(["Stream", "Event"], _STREAMS),
    **dict.fromkeys(["Storage", "FloatStorage", "UntypedStorage"], _ARRAYS),
    **dict.fromkeys(["HalfTensor", "CharTensor", "ShortTensor"], "needle.tensor(data, dtype=...) is it"),
    "GradScaler": "needle.amp.GradScaler is it",
    **dict.fromkeys(
        ["hann_window", "hamming_window", "blackman_window", "kaiser_window", "bartlett_window"],
        "NumPy has windows: np.hanning",
    ),
    **dict.fromkeys(["frombuffer", "from_file"], "needle.from_numpy(np.frombuffer(...)) is it"),
    "asarray": "needle.as_tensor is it",
    **dict.fromkeys(["complex", "is_complex"], _NO_COMPLEX),
    **dict.fromkeys(["poisson", "binomial"], "NumPy draws them: needle.from_numpy(np.random.default_rng().poisson(...))"),
    **dict.fromkeys(["fx", "export", "package"], "needle.capture records a function, needle.onnx writes a model to a file"),
    **dict.fromkeys(["cond", "while_loop"], "Python's if and while are recorded as they run"),
    "multiprocessing": "needle.distributed starts ranks; a DataLoader's workers are threads",
    "profiler": "needle.profile() measures a block",
    "initial_seed": "needle.Generator().manual_seed(s).initial_seed() knows its own",
    **dict.fromkeys(["chain_matmul", "norm_except_dim", "nuclear_norm"], "needle.linalg has multi_dot and norm"),
    "channel_shuffle": "x.reshape, permute and reshape again is it",
    "get_default_device": "needle.default_device() is it",
    "get_float32_matmul_precision": "products of float32 are float32's",
    "is_inference_mode_enabled": "needle.is_grad_enabled() is the question",
    "is_autocast_enabled": "needle.amp has autocast",
    "atleast_3d": "needle.atleast_2d(x).unsqueeze(-1) is it",
    "detach": "x.detach() is it",
    "combinations": "itertools.combinations gives the positions to pick",
    "pdist": "needle.cdist(x, x) has all distances",
    "gradient": "NumPy has np.gradient for x.numpy()",
    "nested": "nn.utils.rnn packs sequences of different lengths",
    "mps": "the CPU and CUDA are there",
    "hub": "needle_nn.models has from_pretrained for folders of Hugging Face",
    "futures": "operators are done when they return",
    **{name: hint for name, hint in METHODS.items() if name[-1] != "_"},
    **{f"{name}_": f"a method: x.{name}_()" for name in """abs acos asin atan ceil clamp cos cosh exp floor log neg relu round rsqrt
        sigmoid sin sqrt square tan tanh trunc""".split()},
}  # fmt: skip


class Missing:
    """In place of a method: looking it up says what there is instead; for `hasattr` there is nothing."""

    def __init__(self, name: str, hint: str) -> None:
        self.name, self.hint = name, hint

    def __get__(self, tensor: Any, owner: Any) -> Any:
        raise AttributeError(f"Tensor has no {self.name!r}; {self.hint}", name=self.name)
