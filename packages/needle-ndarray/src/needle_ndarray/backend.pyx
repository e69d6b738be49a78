# cython: embedsignature.format=clinic
"""The backend interface: the op table, and the verbs a backend implements.

NDArray does structure: it checks arguments, broadcasts, promotes dtypes, resolves indices, allocates results. A backend does
arithmetic. A verb is an instruction: `verb(op, inputs, results, numbers)`, with an op from its table where it has one, arrays that
it reads, arrays that it writes, and then everything that may change between two calls with the same arrays. It returns nothing and
keeps nothing, so that a list of calls can be run again. By the time a verb is called everything fits, and a backend checks nothing:

- arrays are NDArrays of this backend's device, with `shape`, `strides` and `offset` (in elements), `dtype` and `_handle`, the
  buffer that `allocate` returned; any of them may be a view with any strides (zero and negative ones too);
- inputs of an elementwise verb have the shape of `out`; an input overlaps `out` only where it is exactly the same view;
- inputs have the dtype that the table asks for, `out` the dtype that it promises; zero-size arrays arrive like any other;
- float16 and bfloat16, words of 16 bits, come to `from_host`, `to_host`, `fill`, `copy`, `take`, `scatter` put and
  `matmul_weight` only. Every other verb gets float32 in their place.

Required verbs have no body here. The verbs under "Optional" are fused kernels: each has a default made of the required ones
(the package `defaults`), so a new backend works on day one and gets fast kernel by kernel. Long because it is the whole
interface, verb after verb.
"""

from needle_ndarray cimport optable
from needle_ndarray.optable cimport BOOL, DTYPE_COUNT, FLOAT16, FLOAT32, FLOAT64, INT32, INT64, UINT8

#: Raised when a verb's meaning or the table changes; a backend states the version it implements.
INTERFACE_VERSION = 2


cdef class Op:
    """Op(name, code, accepts, result, formula="")
--

    A row of the op table: a name, what it accepts and what dtype it returns.

    accepts  "any", "number" (no bool), "integer" (bool and ints), "float" (ints and bool are cast to float first),
             "int-up" (bool is cast to int32 first), "int" (the same, and no floats), "bool" (every input is cast to bool first)
    result   "same" as the inputs after that cast, "bool", "index" (int64), or "sum" (ints and bool widen to int64); -1 for
             float16 and bfloat16, which no verb that computes gets
    """

    def __init__(self, str name, int code, str accepts, str result, str formula=""):
        if self.verb:
            raise TypeError(f"Op.__init__: {self.name} is in a table, where it keeps its meaning")
        self.name, self.code, self.accepts, self.result, self.formula = name, code, accepts, result, formula
        cdef int i
        self.compute_dtype = [COMPUTE[accepts][i] for i in range(<int> DTYPE_COUNT)]
        self.out_dtype = [-1 if c < 0 or i >= FLOAT16 else RESULT[result][c] for i, c in enumerate(self.compute_dtype)]
        for i in range(<int> DTYPE_COUNT):
            self.compute_code[i], self.out_code[i] = self.compute_dtype[i], self.out_dtype[i]

    def __repr__(self):
        return f"<Op {self.name}: {self.formula}>"


#                        bool     uint8    int32    int64    float32  float64; float16 and bfloat16 compute as float32
cdef dict COMPUTE = {
    "any":              [BOOL,    UINT8,   INT32,   INT64,   FLOAT32, FLOAT64, FLOAT32, FLOAT32],
    "number":           [-1,      UINT8,   INT32,   INT64,   FLOAT32, FLOAT64, FLOAT32, FLOAT32],
    "integer":          [BOOL,    UINT8,   INT32,   INT64,   -1,      -1,      -1,      -1],
    "int":              [INT32,   UINT8,   INT32,   INT64,   -1,      -1,      -1,      -1],
    "float":            [FLOAT32, FLOAT32, FLOAT64, FLOAT64, FLOAT32, FLOAT64, FLOAT32, FLOAT32],
    "divide":           [FLOAT64, FLOAT64, FLOAT64, FLOAT64, FLOAT32, FLOAT64, FLOAT32, FLOAT32],
    "int-up":           [INT32,   UINT8,   INT32,   INT64,   FLOAT32, FLOAT64, FLOAT32, FLOAT32],
    "bool":             [BOOL,    BOOL,    BOOL,    BOOL,    BOOL,    BOOL,    BOOL,    BOOL],
}
cdef dict RESULT = {
    "same":             [BOOL,    UINT8,   INT32,   INT64,   FLOAT32, FLOAT64],
    "bool":             [BOOL,    BOOL,    BOOL,    BOOL,    BOOL,    BOOL],
    "index":            [INT64,   INT64,   INT64,   INT64,   INT64,   INT64],
    "sum":              [INT64,   INT64,   INT64,   INT64,   FLOAT32, FLOAT64],
}


cdef dict table(int verb, tuple rows):
    """{name: op}. Only ops made here have a verb: the CPU kernels refuse any other, whose code might mean something else."""
    cdef Op op
    cdef dict made = {}
    for row in rows:
        op = Op(*row)
        op.verb = verb
        made[op.name] = op
    return made


UNARY = table(UNARY_OP, (
    ("negative", optable.NEGATIVE, "number", "same", "-a"),
    ("abs", optable.ABS, "any", "same", "|a|"),
    ("sign", optable.SIGN, "number", "same", "-1, 0 or 1; NaN for NaN"),
    ("sqrt", optable.SQRT, "float", "same", "a^(1/2)"),
    ("rsqrt", optable.RSQRT, "float", "same", "a^(-1/2)"),
    ("relu", optable.RELU, "any", "same", "max(a, 0)"),
    ("floor", optable.FLOOR, "any", "same", "largest integer <= a"),
    ("ceil", optable.CEIL, "any", "same", "smallest integer >= a"),
    ("trunc", optable.TRUNC, "any", "same", "nearest integer towards 0"),
    ("round", optable.ROUND, "any", "same", "nearest integer, ties to even"),
    ("isnan", optable.ISNAN, "any", "bool", "a != a"),
    ("isinf", optable.ISINF, "any", "bool", "|a| == inf"),
    ("isfinite", optable.ISFINITE, "any", "bool", "|a| < inf"),
    ("signbit", optable.SIGNBIT, "float", "bool", "whether the sign is minus, that of -0.0 and of NaN too"),
    ("logical_not", optable.LOGICAL_NOT, "bool", "bool", "not a"),
    ("invert", optable.INVERT, "integer", "same", "every bit flipped; not a for bool"),
    ("exp", optable.EXP, "float", "same", "e^a"),
    ("expm1", optable.EXPM1, "float", "same", "e^a - 1"),
    ("log", optable.LOG, "float", "same", "ln a"),
    ("log1p", optable.LOG1P, "float", "same", "ln(1 + a)"),
    ("sin", optable.SIN, "float", "same", "sin a"),
    ("cos", optable.COS, "float", "same", "cos a"),
    ("tanh", optable.TANH, "float", "same", "tanh a"),
    ("sigmoid", optable.SIGMOID, "float", "same", "1 / (1 + e^-a)"),
    ("erf", optable.ERF, "float", "same", "2/sqrt(pi) * integral of e^(-t^2) from 0 to a"),
    ("gelu", optable.GELU, "float", "same", "a P(a), P(a) = (1 + erf(a / sqrt 2)) / 2"),
    ("silu", optable.SILU, "float", "same", "a s, s = sigmoid(a)"),
    ("log2", optable.LOG2, "float", "same", "log a to base 2"),
    ("log10", optable.LOG10, "float", "same", "log a to base 10"),
    ("tan", optable.TAN, "float", "same", "tan a"),
    ("asin", optable.ASIN, "float", "same", "the angle from -pi/2 to pi/2 whose sine is a"),
    ("acos", optable.ACOS, "float", "same", "the angle from 0 to pi whose cosine is a"),
    ("atan", optable.ATAN, "float", "same", "the angle from -pi/2 to pi/2 whose tangent is a"),
    ("sinh", optable.SINH, "float", "same", "(e^a - e^-a) / 2"),
    ("cosh", optable.COSH, "float", "same", "(e^a + e^-a) / 2"),
    ("asinh", optable.ASINH, "float", "same", "ln(a + (a^2 + 1)^(1/2)), the inverse of sinh"),
    ("acosh", optable.ACOSH, "float", "same", "ln(a + (a^2 - 1)^(1/2)), the inverse of cosh"),
    ("atanh", optable.ATANH, "float", "same", "ln((1 + a) / (1 - a)) / 2, the inverse of tanh"),
))

BINARY = table(BINARY_OP, (
    ("add", optable.ADD, "any", "same", "a + b; or for bool"),
    ("subtract", optable.SUBTRACT, "number", "same", "a - b"),
    ("multiply", optable.MULTIPLY, "any", "same", "a * b; and for bool"),
    ("divide", optable.DIVIDE, "divide", "same", "a / b"),
    ("floor_divide", optable.FLOOR_DIVIDE, "int-up", "same", "floor(a / b); 0 for an integer over 0"),
    ("remainder", optable.REMAINDER, "int-up", "same", "a - floor(a / b) b: the sign of b"),
    ("power", optable.POWER, "int-up", "same", "a^b"),
    ("maximum", optable.MAXIMUM, "any", "same", "the larger; NaN if either is"),
    ("minimum", optable.MINIMUM, "any", "same", "the smaller; NaN if either is"),
    ("equal", optable.EQUAL, "any", "bool", "a == b"),
    ("not_equal", optable.NOT_EQUAL, "any", "bool", "a != b"),
    ("less", optable.LESS, "any", "bool", "a < b"),
    ("less_equal", optable.LESS_EQUAL, "any", "bool", "a <= b"),
    ("greater", optable.GREATER, "any", "bool", "a > b"),
    ("greater_equal", optable.GREATER_EQUAL, "any", "bool", "a >= b"),
    ("logical_and", optable.LOGICAL_AND, "bool", "bool", "a and b"),
    ("logical_or", optable.LOGICAL_OR, "bool", "bool", "a or b"),
    ("logical_xor", optable.LOGICAL_XOR, "bool", "bool", "a != b"),
    ("bitwise_and", optable.BITWISE_AND, "integer", "same", "a & b"),
    ("bitwise_or", optable.BITWISE_OR, "integer", "same", "a | b"),
    ("bitwise_xor", optable.BITWISE_XOR, "integer", "same", "a ^ b"),
    ("relu_grad", optable.RELU_GRAD, "number", "same", "a where b > 0, else 0: the gradient of b = relu(x), for a that of b"),
    ("tanh_grad", optable.TANH_GRAD, "float", "same", "a (1 - b) (1 + b): the gradient of b = tanh(x)"),
    ("sigmoid_grad", optable.SIGMOID_GRAD, "float", "same", "a b (1 - b): the gradient of b = sigmoid(x)"),
    ("gelu_grad", optable.GELU_GRAD, "float", "same", "a (P(b) + b e^(-b^2/2) / sqrt(2 pi)): the gradient of gelu(b)"),
    ("silu_grad", optable.SILU_GRAD, "float", "same", "a s (1 + b (1 - s)), s = sigmoid(b): the gradient of silu(b)"),
    ("atan2", optable.ATAN2, "float", "same", "the angle of the point (b, a), from -pi to pi"),
    ("hypot", optable.HYPOT, "float", "same", "(a^2 + b^2)^(1/2), without overflow"),
    ("logaddexp", optable.LOGADDEXP, "float", "same", "ln(e^a + e^b), without overflow"),
    ("copysign", optable.COPYSIGN, "float", "same", "|a| with the sign of b"),
    ("nextafter", optable.NEXTAFTER, "float", "same", "the next number after a, in the direction of b"),
    ("bitwise_left_shift", optable.LEFT_SHIFT, "int", "same", "a 2^b, bits beyond the first lost; 0 for b < 0 or beyond all bits"),
    ("bitwise_right_shift", optable.RIGHT_SHIFT, "int", "same",
     "floor(a / 2^b); 0 or -1, by the sign of a, where b < 0 or beyond all bits"),
))

REDUCE = table(REDUCE_OP, (
    ("sum", optable.SUM, "any", "sum", "a0 + a1 + ...; 0 for none"),
    ("prod", optable.PROD, "any", "sum", "a0 * a1 * ...; 1 for none"),
    ("max", optable.MAX, "any", "same", "the largest; NaN if one is"),
    ("min", optable.MIN, "any", "same", "the smallest; NaN if one is"),
    ("any", optable.ANY, "any", "bool", "whether one is not 0"),
    ("all", optable.ALL, "any", "bool", "whether none is 0"),
))

ARG_REDUCE = table(ARG_REDUCE_OP, (
    ("argmax", optable.ARGMAX, "any", "index", "position of the first largest; of the first NaN if there is one"),
    ("argmin", optable.ARGMIN, "any", "index", "position of the first smallest; of the first NaN if there is one"),
))

SCAN = table(SCAN_OP, (
    ("cumsum", optable.CUMSUM, "any", "sum", "a0, a0 + a1, ..., each sum from the left"),
))

RANDOM = table(RANDOM_OP, (
    ("uniform", optable.UNIFORM, "float", "same", "even on [0, 1)"),
    ("normal", optable.NORMAL, "float", "same", "mean 0, standard deviation 1"),
))

SCATTER = table(SCATTER_OP, (
    ("put", optable.PUT, "any", "same", "out[index[i]] = a[i]: where an entry repeats, the last one wins"),
    ("scatter_add", optable.SCATTER_ADD, "any", "same", "out[index[i]] += a[i]: repeated entries add up, in that order"),
))

ROWS = table(ROWS_OP, (
    ("softmax", optable.SOFTMAX, "float", "same", "e^(a - max) / sum e^(a - max)"),
    ("log_softmax", optable.LOG_SOFTMAX, "float", "same", "a - max - log sum e^(a - max)"),
    ("logsumexp", optable.LOGSUMEXP, "float", "same", "max + log sum e^(a - max); a max of +-inf is left out of the shift"),
))

NORM = table(NORM_OP, (
    ("layer_norm", optable.LAYER_NORM, "float", "same", "mean and var over the last axis"),
    ("batch_norm", optable.BATCH_NORM, "float", "same", "mean and var over all axes but the last; NaN where there are no rows"),
))

CONV2D = table(CONV2D_OP, (
    ("conv2d", optable.CONV2D, "float", "same",
     "y[n, i, j, f] = sum of x[n, i sh - top + u dh, j sw - left + v dw, c] weight[u, v, c, f]; 0 beyond the image"),
    ("conv2d_input_grad", optable.INPUT_GRAD, "float", "same", "x = its gradient, when that of conv2d(x, weight) is y"),
    ("conv2d_weight_grad", optable.WEIGHT_GRAD, "float", "same", "weight = its gradient, when that of conv2d(x, weight) is y"),
))

POOL2D = table(POOL2D_OP, (
    ("max_pool2d", optable.MAX_POOL, "float", "same", "the largest of the window, NaN if one is; places beyond the image are -inf"),
    ("avg_pool2d", optable.AVG_POOL, "float", "same", "sum of the window / (kh kw); places beyond the image are 0, and count"),
))

CELL = table(CELL_OP, (
    ("lstm_cell", optable.LSTM, "float", "same",
     "i, f, g, o = x + (y + bias), g through tanh and the others through sigmoid; c' = f c + i g; h' = o tanh(c')"),
    ("gru_cell", optable.GRU, "float", "same",
     "r, z = sigmoid(x + (y + bias)), m = y + bias, n = tanh(x + r m); h' = n + z (h - n)"),
))

SEQUENCE = table(SEQUENCE_OP, (
    ("rnn_tanh", optable.RNN_TANH, "float", "same", "h' = tanh(x + (h weight + bias))"),
    ("rnn_relu", optable.RNN_RELU, "float", "same", "h' = relu(x + (h weight + bias))"),
    ("lstm", optable.LSTM, "float", "same", "lstm_cell of x, y = h weight and c"),
    ("gru", optable.GRU, "float", "same", "gru_cell of x, y = h weight and h"),
))

STEP = table(STEP_OP, (
    ("sgd", optable.SGD, "float", "same", "m = momentum m + (1 - dampening) g'; p -= lr m / correction; without m, p -= lr g'"),
    ("nesterov", optable.NESTEROV, "float", "same", "as sgd, but p -= lr (momentum m + (1 - dampening) g') / correction"),
    ("adam", optable.ADAM, "float", "same",
     "m = beta1 m + (1 - beta1) g'; v = beta2 v + (1 - beta2) g' g'; p -= lr (m / correction1) / (sqrt(v / correction2) + eps)"),
    ("adamw", optable.ADAMW, "float", "same", "p -= lr weight_decay p, then as adam with g' = g"),
))

#: Every table by the verb that takes its ops; a verb with `_grad` takes those of the verb it is the gradient of.
TABLES = {
    "unary": UNARY, "binary": BINARY, "reduce": REDUCE, "arg_reduce": ARG_REDUCE, "scan": SCAN, "scatter": SCATTER,
    "random": RANDOM, "rows": ROWS, "norm": NORM, "conv2d": CONV2D, "pool2d": POOL2D, "cell": CELL, "sequence": SEQUENCE,
    "step": STEP,
}
#: What a backend has to implement; every other member of Backend has a default.
REQUIRED = (
    "allocate", "from_host", "to_host", "fill", "copy", "unary", "binary", "where", "reduce", "arg_reduce", "scan", "matmul",
    "take", "scatter", "random",
)

__all__ = ["Backend", "INTERFACE_VERSION", "Op", "REQUIRED", "TABLES", *[verb.upper() for verb in TABLES]]


cdef object defaults():
    """The module of the defaults; imported when first asked for, because it computes with NDArrays, which need this module."""
    global defaults_module
    if defaults_module is None:
        from needle_ndarray import defaults as defaults_module
    return defaults_module


cdef object defaults_module = None


cdef class Backend:
    """Backend()
--

    Base of every backend: subclass it in Python or Cython, implement the required verbs, register an entry point.

    Class attributes: `name`, the device's name; `interface_version`, the INTERFACE_VERSION it was written for; `numbered`,
    whether there may be several devices, made by `Class(number)`; `tile_size` of `matmul_tiled`.
    """

    name = "none"
    interface_version = INTERFACE_VERSION
    numbered = False
    has_graphs = False                  # whether `graph` gives something
    has_epilogues = False               # whether elementwise calls after a convolution can be a part of it
    tile_size = 8

    # ---- Hooks: the device, and memory of others. None is a valid answer of each -----------------------------------------

    def why_disabled(self):
        """None where the device can be used here, else one line: what is missing, and the remedy."""
        return None

    def from_device(self, a):
        """A copy here of an array on another device, without a stop at the host; None where there is no such way."""
        return None

    def ahead(self):
        """A context whose copies to the device run beside what is queued later, giving a function to call before they are used;
        None where a copy is done when it returns.
        """
        return None

    def graph(self, calls, shared, moving, written):
        """What runs these calls (verb, args) of a plan as one: `run()` does so and returns True, or does nothing and returns False.

        The arrays stay; where their memory may be another one in the next replay, `moving` has an array of each buffer. `written`
        has one of each that is written to, `shared` is the same dictionary for all graphs of a plan. None: one call after another.
        """
        return None

    def dlpack_device(self):
        """DLPack's (device type, device id) of this device; None where it has none, or is the host."""
        return None

    def to_dlpack(self, a, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule on the memory of `a`, or of a copy; None where the memory cannot be shared."""
        return None

    def from_dlpack(self, x, copy=None):
        """An array on the memory of x, which has the type of `dlpack_device`."""
        return None

    def matmul_tiled(self, a, b, out, m, n, p):
        """out = a @ b over handles of float32 tiles [M/T][N/T][T][T], T = tile_size: the course's exercise"""
        defaults().matmul_tiled(self, a, b, out, m, n, p)

    # ---- Required: memory --------------------------------------------------------------------------

    cpdef object allocate(self, Py_ssize_t nbytes):
        """A buffer of at least nbytes, uninitialised. It has `nbytes`, `ptr()`, `version` and `mark_written()`; `Buffer` is one."""
        raise NotImplementedError(f"backend {self.name}: allocate")

    cpdef from_host(self, object values, object out):
        """out[...] = values, a C-contiguous numpy.ndarray of out's dtype (`dtype.storage`) and shape; out is compact."""
        raise NotImplementedError(f"backend {self.name}: from_host")

    cpdef object to_host(self, object a):
        """A new C-contiguous numpy.ndarray with the values of `a`, of `dtype.storage`: bfloat16 as words of uint16."""
        raise NotImplementedError(f"backend {self.name}: to_host")

    cpdef synchronize(self):
        """Wait until everything asked for is done. Nothing to do for a backend that computes at once."""

    # ---- Required: arithmetic --------------------------------------------------------------------------

    cpdef fill(self, object out, object value):
        """out[...] = value, a Python scalar"""
        raise NotImplementedError(f"backend {self.name}: fill")

    cpdef copy(self, object a, object out):
        """out[...] = a, cast to out's dtype as NumPy's astype does; to bfloat16 and float16 the nearest, ties to even"""
        raise NotImplementedError(f"backend {self.name}: copy")

    cpdef unary(self, Op op, object a, object out):
        """out[i] = op(a[i])"""
        raise NotImplementedError(f"backend {self.name}: unary {op.name}")

    cpdef binary(self, Op op, object a, object b, object out):
        """out[i] = op(a[i], b[i])"""
        raise NotImplementedError(f"backend {self.name}: binary {op.name}")

    cpdef where(self, object condition, object a, object b, object out):
        """out[i] = a[i] if condition[i] else b[i]; condition is bool, the others share a dtype"""
        raise NotImplementedError(f"backend {self.name}: where")

    cpdef reduce(self, Op op, object a, object out, tuple axes):
        """out = op over `axes` of a (sorted, none twice, perhaps none at all); out has the other axes, in order, and may have
        those that are reduced as axes of size 1.

        Float sums are pairwise, blocked or in wider precision: an error that grows with log n, not n. `max` and `min` are
        never asked for over no elements.
        """
        raise NotImplementedError(f"backend {self.name}: reduce {op.name}")

    cpdef arg_reduce(self, Op op, object a, object out, int axis):
        """out = position along `axis` (of size > 0); out is int64 and has the other axes"""
        raise NotImplementedError(f"backend {self.name}: arg_reduce {op.name}")

    cpdef scan(self, Op op, object a, object out, int axis):
        """out[..., i, ...] = op over a[..., :i+1, ...] along `axis`; a has out's dtype"""
        raise NotImplementedError(f"backend {self.name}: scan {op.name}")

    cpdef matmul(self, object a, object b, object out):
        """out (..., m, n) = a (..., m, k) @ b (..., k, n): equal leading axes, one dtype (never bool); 0 where k is 0"""
        raise NotImplementedError(f"backend {self.name}: matmul")

    cpdef take(self, object a, object index, object out):
        """out[i, ...] = a[index[i], ...]: index is 1-d int64, every entry in [0, a.shape[0])"""
        raise NotImplementedError(f"backend {self.name}: take")

    cpdef scatter(self, Op op, object a, object index, object out):
        """out[index[i], ...] = a[i, ...], or += for scatter_add, for i = 0, 1, ...; index as in take, entries may repeat"""
        raise NotImplementedError(f"backend {self.name}: scatter {op.name}")

    cpdef random(self, Op op, object out, unsigned long long seed, unsigned long long counter):
        """Fill compact `out` from Philox-4x32-10 blocks counter, counter + 1, ... (see random.py): the same bits everywhere"""
        raise NotImplementedError(f"backend {self.name}: random {op.name}")

    # ---- Optional: products and rows ---------------------------------------------------------------------------------

    cpdef linear(self, object x, object weight, object bias, object out):
        """out = x @ weight + bias: (m, k), (k, n) and (n,) or (1, n) -> (m, n)"""
        defaults().linear(self, x, weight, bias, out)

    cpdef matmul_weight(self, object a, object weight, object scale, object out):
        """out (m, n) = a (m, k) @ weight (k, n), of float32 and a weight of float16, bfloat16 or uint8, times scale (n,) or None

        A byte w means w - 128: eight bits with a sign, and with a scale for each column. The weight is widened as it is read.
        """
        defaults().matmul_weight(self, a, weight, scale, out)

    cpdef rows(self, Op op, object a, object out):
        """out = op over the last axis of a, which is not empty; out has a's shape, for logsumexp without the last axis"""
        defaults().rows(self, op, a, out)

    cpdef rows_grad(self, Op op, object grad, object x, object y, object out):
        """out = the gradient of x, when that of y = rows(op, x) is grad: of softmax y (grad - sum y grad), of log_softmax
        grad - e^y sum grad, of logsumexp grad e^(x - y), 0 where y is -inf. Only logsumexp needs x, which is None for the others
        """
        defaults().rows_grad(self, op, grad, x, y, out)

    cpdef cross_entropy(self, object logits, object labels, object out):
        """out = -log softmax(logits)[label], over the last axis; labels are int64, every one in [0, logits.shape[-1])"""
        defaults().cross_entropy(self, logits, labels, out)

    cpdef cross_entropy_grad(self, object grad, object logits, object labels, object out):
        """out = (softmax(logits) - onehot(labels)) grad"""
        defaults().cross_entropy_grad(self, grad, logits, labels, out)

    # ---- Optional: norms and attention -------------------------------------------------------------------------------
    # A weight, bias or mask may be None; weights and biases are vectors over the last axis.

    cpdef norm(self, Op op, object x, object weight, object bias, object out, object mean, object var, double eps):
        """out = (x - mean) / sqrt(var + eps) * weight + bias; batch_norm writes mean and var, which are None for layer_norm"""
        defaults().norm(self, op, x, weight, bias, out, mean, var, eps)

    cpdef norm_grad(self, Op op, object grad, object x, object weight, object mean, object var, object dx, object dweight,
                    object dbias, double eps):
        """dx = (g - mean g - x^ mean(g x^)) / sqrt(var + eps) for g = grad weight, x^ = (x - mean) / sqrt(var + eps);
        dweight = sum of grad x^, dbias = sum of grad, over all axes but the last. mean and var: as norm wrote them
        """
        defaults().norm_grad(self, op, grad, x, weight, mean, var, dx, dweight, dbias, eps)

    cpdef attention(self, object q, object k, object v, object mask, object out, bint causal, double scale):
        """out = softmax(scale q k^T + mask) v; q (..., t, d), k (..., s, d), v (..., s, e), mask (..., t, s), out (..., t, e)

        A float mask is added, a bool one is True where a query may attend to a key; `causal` lets query i see the keys up to
        i + s - t. A row with nothing to attend to gives 0.
        """
        defaults().attention(self, q, k, v, mask, out, causal, scale)

    cpdef attention_grad(self, object grad, object q, object k, object v, object mask, object dq, object dk, object dv, bint causal,
                         double scale):
        """For p the softmax: dv = p^T grad; ds = p (dp - sum p dp) with dp = grad v^T; dq = scale ds k, dk = scale ds^T q"""
        defaults().attention_grad(self, grad, q, k, v, mask, dq, dk, dv, causal, scale)

    # ---- Optional: convolution and pooling, NHWC --------------------------------------------------------------------------
    # x (N, H, W, C), weight (KH, KW, C / groups, F), y (N, OH, OW, F). Pairs are (down, right), padding is ((top, bottom),
    # (left, right)). Each window fits the padded image, and y has a place for each.

    cpdef conv2d(self, Op op, object x, object weight, object y, tuple stride, tuple padding, tuple dilation, Py_ssize_t groups):
        """One of x, weight and y out of the other two: the op says which, and how"""
        defaults().conv2d(self, op, x, weight, y, stride, padding, dilation, groups)

    cpdef pool2d(self, Op op, object x, object out, tuple size, tuple stride, tuple padding):
        """out[n, i, j, c] = op over the window of x at (i, j)"""
        defaults().pool2d(self, op, x, out, size, stride, padding)

    cpdef pool2d_grad(self, Op op, object grad, object x, object out, tuple size, tuple stride, tuple padding):
        """out = the gradient of x, when that of pool2d(x) is grad. Of max_pool2d each window's goes to its first largest element in
        the image, or to its first NaN; avg_pool2d needs no x, which is None
        """
        defaults().pool2d_grad(self, op, grad, x, out, size, stride, padding)

    # ---- Optional: recurrent layers ----------------------------------------------------------------------------------
    # The gates of a cell lie side by side along the last axis. x is the part of their preactivations that comes from the input,
    # y the part that comes from the state, h W; bias, a vector or None, is added to y. gates may be None: not wanted. What a cell
    # does not have is None as well: c and its kin of GRU, dx of LSTM, where it is ds.

    cpdef cell(self, Op op, object x, object y, object bias, object state, object h_out, object c_out, object gates):
        """h_out, c_out and gates of one step from the state, which is c for lstm_cell and h for gru_cell

        lstm_cell: x, y (B, 4H), state, h_out, c_out (B, H), gates (B, 4H) = i, f, g, o, which may be the view x or y; c_out may
        be c. gru_cell: x, y (B, 3H) have r, z, n; state, h_out (B, H); gates (B, 4H) = r, z, n, m.
        """
        defaults().cell(self, op, x, y, bias, state, h_out, c_out, gates)

    cpdef cell_grad(self, Op op, object dy, object dh, object dc, object gates, object state, object c_out, object dx, object ds,
                    object dstate):
        """dx, ds and dstate: the gradients of x, y and the state, for dy + dh that of h_out and dc that of c_out

        lstm_cell, with d = dy + dh, t = tanh(c_out), e = dc + d o (1 - t^2): ds (B, 4H) = e g i (1 - i), e c f (1 - f),
        e i (1 - g^2), d t o (1 - o); dstate = e f, which may be dc.
        gru_cell, with dn = d (1 - z) (1 - n^2), dz = d (h - n) z (1 - z), dr = dn m r (1 - r): dx (B, 3H) = dr, dz, dn;
        ds (B, 3H) = dr, dz, dn r; dstate = d z, which may be dh.
        """
        defaults().cell_grad(self, op, dy, dh, dc, gates, state, c_out, dx, ds, dstate)

    cpdef sequence(self, Op op, object x, object weight, object bias, object h, object c, object gates):
        """h[t + 1], c[t + 1], gates[t] = one step from x[t], h[t] weight and c[t], for t = 0, 1, ...

        x (T, B, G H), weight (H, G H), bias (G H,) or None, with G = 4 for lstm, 3 for gru and 1 for rnn; h and c (T + 1, B, H),
        whose first entries are given. gates (T, B, 4H) as in cell; without them lstm has one c (1, B, H), overwritten.
        """
        defaults().sequence(self, op, x, weight, bias, h, c, gates)

    cpdef sequence_grad(self, Op op, object dy, object weight, object h, object c, object gates, object dx, object ds, object dh,
                        object dc):
        """dx, ds (T, B, G H) = the gradients of x and of h weight (dx of gru only: elsewhere they are equal), for dy (T, B, H) that
        of h[1:]; dh, dc (B, H): from that of the last h and c (besides dy) to that of the first. lstm needs no h
        """
        defaults().sequence_grad(self, op, dy, weight, h, c, gates, dx, ds, dh, dc)

    # ---- Optional: steps of optimizers, in place ---------------------------------------------------------------------

    cpdef step(self, Op op, list params, list grads, list m, list v, tuple hyperparameters):
        """One step of every parameter p with its gradient g, by the rule of the op: lists with one entry for each parameter.

        hyperparameters: (lr, momentum, dampening, weight_decay, l1, correction) of sgd and nesterov, whose m may be None and v is;
        (lr, beta1, beta2, eps, weight_decay, correction1, correction2) of adam and adamw. g' = g + weight_decay p + l1 sign(p);
        penalties of 0 are left out, whatever they would be multiplied by.
        """
        defaults().step(self, op, params, grads, m, v, hyperparameters)

    # ---- Replays -----------------------------------------------------------------------------------------------------

    cdef bint prepare(self, str verb, tuple args, Call* call) except -1:
        """Check a call and make it ready to be run without this method's arguments; False where it has to be made as it is."""
        return False

    cdef int fuse(self, Call* call, list steps) except -1:
        """Let a prepared convolution do the first of these calls (verb, args) too, which write over its result; how many."""
        return 0
