"""The backend interface: the op table, and the verbs a backend implements.

NDArray does structure: it checks arguments, broadcasts, promotes dtypes, resolves indices, allocates results. A backend does
arithmetic. By the time a verb is called everything fits, so a backend checks nothing:

- arrays are NDArrays of this backend's device, with `shape`, `strides` and `offset` (in elements), `dtype` and `_handle`, the
  buffer that `allocate` returned; any of them may be a view with any strides (zero and negative ones too);
- inputs of an elementwise verb have the shape of `out`; an input overlaps `out` only where it is exactly the same view;
- inputs have the dtype that the table asks for, `out` the dtype that it promises; zero-size arrays arrive like any other.

Required verbs have no body here. The verbs under "Optional" are fused kernels: each has a default made of the required ones
(defaults.py), so a new backend works on day one and gets fast kernel by kernel. Long because it is the whole interface, verb
after verb.
"""

from needle_ndarray cimport optable
from needle_ndarray.optable cimport BOOL, DTYPE_COUNT, FLOAT32, FLOAT64, INT32, INT64, UINT8

#: Raised when a verb's meaning or the table changes; a backend states the version it implements.
INTERFACE_VERSION = 1


cdef class Op:
    """A row of the op table: a name, what it accepts and what dtype it returns.

    accepts  "any", "number" (no bool), "integer" (bool and ints), "float" (ints and bool are cast to float first),
             "int-up" (bool is cast to int32 first), "bool" (every input is cast to bool first)
    result   "same" as the inputs after that cast, "bool", "index" (int64), or "sum" (ints and bool widen to int64)
    """

    def __init__(self, str name, int code, str accepts, str result, str formula=""):
        if self.verb:
            raise TypeError(f"Op.__init__: {self.name} is in a table, where it keeps its meaning")
        self.name, self.code, self.accepts, self.result, self.formula = name, code, accepts, result, formula
        cdef int i
        self.compute_dtype = [COMPUTE[accepts][i] for i in range(DTYPE_COUNT)]
        self.out_dtype = [-1 if c < 0 else RESULT[result][c] for c in self.compute_dtype]
        for i in range(DTYPE_COUNT):
            self.compute_code[i], self.out_code[i] = self.compute_dtype[i], self.out_dtype[i]

    def __repr__(self):
        return f"<Op {self.name}: {self.formula}>"


#                        bool     uint8    int32    int64    float32  float64
cdef dict COMPUTE = {
    "any":              [BOOL,    UINT8,   INT32,   INT64,   FLOAT32, FLOAT64],
    "number":           [-1,      UINT8,   INT32,   INT64,   FLOAT32, FLOAT64],
    "integer":          [BOOL,    UINT8,   INT32,   INT64,   -1,      -1],
    "float":            [FLOAT32, FLOAT32, FLOAT64, FLOAT64, FLOAT32, FLOAT64],
    "divide":           [FLOAT64, FLOAT64, FLOAT64, FLOAT64, FLOAT32, FLOAT64],
    "int-up":           [INT32,   UINT8,   INT32,   INT64,   FLOAT32, FLOAT64],
    "bool":             [BOOL,    BOOL,    BOOL,    BOOL,    BOOL,    BOOL],
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

#: Every table by the verb that takes its ops.
TABLES = {
    "unary": UNARY, "binary": BINARY, "reduce": REDUCE, "arg_reduce": ARG_REDUCE, "scan": SCAN, "random": RANDOM,
}


cdef object defaults():
    """The module of the defaults; imported when first asked for, because it computes with NDArrays, which need this module."""
    global defaults_module
    if defaults_module is None:
        from needle_ndarray import defaults as defaults_module
    return defaults_module


cdef object defaults_module = None


cdef class Backend:
    """Base of every backend: subclass it in Python or Cython, implement the required verbs, register an entry point.

    Class attributes: `name`, the device's name; `interface_version`, the INTERFACE_VERSION it was written for; `numbered`,
    whether there may be several devices, made by `Class(number)`; `tile_size` of `matmul_tiled`.
    """

    name = "none"
    interface_version = INTERFACE_VERSION
    numbered = False
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
        """out[...] = values, a C-contiguous numpy.ndarray of out's dtype and shape; out is compact."""
        raise NotImplementedError(f"backend {self.name}: from_host")

    cpdef object to_host(self, object a):
        """A new C-contiguous numpy.ndarray with the values of `a`."""
        raise NotImplementedError(f"backend {self.name}: to_host")

    cpdef synchronize(self):
        """Wait until everything asked for is done. Nothing to do for a backend that computes at once."""

    # ---- Required: arithmetic --------------------------------------------------------------------------

    cpdef fill(self, object out, object value):
        """out[...] = value, a Python scalar"""
        raise NotImplementedError(f"backend {self.name}: fill")

    cpdef copy(self, object a, object out):
        """out[...] = a, cast to out's dtype as NumPy's astype does"""
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

    cpdef reduce(self, Op op, object a, tuple axes, object out):
        """out = op over `axes` of a (sorted, none twice, perhaps none at all); out keeps the other axes, in order.

        Float sums are pairwise, blocked or in wider precision: an error that grows with log n, not n. `max` and `min` are
        never asked for over no elements.
        """
        raise NotImplementedError(f"backend {self.name}: reduce {op.name}")

    cpdef arg_reduce(self, Op op, object a, int axis, object out):
        """out = position along `axis` (of size > 0); out is int64 and keeps the other axes"""
        raise NotImplementedError(f"backend {self.name}: arg_reduce {op.name}")

    cpdef scan(self, Op op, object a, int axis, object out):
        """out[..., i, ...] = op over a[..., :i+1, ...] along `axis`; a has out's dtype"""
        raise NotImplementedError(f"backend {self.name}: scan {op.name}")

    cpdef matmul(self, object a, object b, object out):
        """out (..., m, n) = a (..., m, k) @ b (..., k, n): equal leading axes, one dtype (never bool); 0 where k is 0"""
        raise NotImplementedError(f"backend {self.name}: matmul")

    cpdef take(self, object a, object index, object out):
        """out[i, ...] = a[index[i], ...]: index is 1-d int64, every entry in [0, a.shape[0])"""
        raise NotImplementedError(f"backend {self.name}: take")

    cpdef put(self, object a, object index, object values):
        """a[index[i], ...] = values[i, ...] for i = 0, 1, ...: where an entry repeats, the last one wins"""
        raise NotImplementedError(f"backend {self.name}: put")

    cpdef scatter_add(self, object a, object index, object values):
        """a[index[i], ...] += values[i, ...] for i = 0, 1, ...: repeated entries add up, in that order"""
        raise NotImplementedError(f"backend {self.name}: scatter_add")

    cpdef random(self, Op op, unsigned long long seed, unsigned long long counter, object out):
        """Fill compact `out` from Philox-4x32-10 blocks counter, counter + 1, ... (see random.py): the same bits everywhere"""
        raise NotImplementedError(f"backend {self.name}: random {op.name}")

    # ---- Optional: fused kernels, over the last axis; the defaults say what they compute ---------------------------

    cpdef linear(self, object x, object weight, object bias, object out):
        """out = x @ weight + bias: (m, k), (k, n) and (n,) -> (m, n)"""
        defaults().linear(self, x, weight, bias, out)

    cpdef softmax(self, object a, object out):
        """out = e^(a - max) / sum e^(a - max)"""
        defaults().softmax(self, a, out)

    cpdef log_softmax(self, object a, object out):
        """out = a - max - log sum e^(a - max)"""
        defaults().log_softmax(self, a, out)

    cpdef logsumexp(self, object a, object out):
        """out = max + log sum e^(a - max); a max of +-inf is left out of the shift"""
        defaults().logsumexp(self, a, out)

    # ---- Optional: convolution and pooling, NHWC --------------------------------------------------------------------------
    # x (N, H, W, C), weight (KH, KW, C / groups, F), y (N, OH, OW, F). Pairs are (down, right), padding is ((top, bottom),
    # (left, right)). Each window fits the padded image, and y has a place for each.

    cpdef conv2d(self, object x, object weight, tuple stride, tuple padding, tuple dilation, Py_ssize_t groups, object out):
        """out[n, i, j, f] = sum of x[n, i sh - top + u dh, j sw - left + v dw, c] weight[u, v, c, f]; 0 beyond the image"""
        defaults().conv2d(self, x, weight, stride, padding, dilation, groups, out)

    cpdef conv2d_input_grad(self, object grad, object weight, tuple stride, tuple padding, tuple dilation, Py_ssize_t groups,
                            object out):
        """out = the gradient of x, when that of conv2d(x, weight) is grad"""
        defaults().conv2d_input_grad(self, grad, weight, stride, padding, dilation, groups, out)

    cpdef conv2d_weight_grad(self, object x, object grad, tuple stride, tuple padding, tuple dilation, Py_ssize_t groups,
                             object out):
        """out = the gradient of weight, when that of conv2d(x, weight) is grad"""
        defaults().conv2d_weight_grad(self, x, grad, stride, padding, dilation, groups, out)

    cpdef max_pool2d(self, object x, tuple size, tuple stride, tuple padding, object out):
        """out[n, i, j, c] = the largest of the window, NaN if one is; places beyond the image are -inf"""
        defaults().max_pool2d(self, x, size, stride, padding, out)

    cpdef max_pool2d_grad(self, object grad, object x, tuple size, tuple stride, tuple padding, object out):
        """out = the gradient of x: that of each window goes to its first largest element in the image, or to its first NaN"""
        defaults().max_pool2d_grad(self, grad, x, size, stride, padding, out)

    cpdef avg_pool2d(self, object x, tuple size, tuple stride, tuple padding, object out):
        """out[n, i, j, c] = sum of the window / (kh kw); places beyond the image are 0, and count"""
        defaults().avg_pool2d(self, x, size, stride, padding, out)

    cpdef avg_pool2d_grad(self, object grad, tuple size, tuple stride, tuple padding, object out):
        """out = the gradient of x, when that of avg_pool2d(x) is grad"""
        defaults().avg_pool2d_grad(self, grad, size, stride, padding, out)

    # ---- Optional: norms, cross-entropy, attention -----------------------------------------------------------------
    # A weight, bias or mask may be None; weights and biases are vectors over the last axis.

    cpdef layer_norm(self, object x, object weight, object bias, double eps, object out):
        """out = (x - mean) / sqrt(var + eps) * weight + bias, with mean and var over the last axis"""
        defaults().layer_norm(self, x, weight, bias, eps, out)

    cpdef layer_norm_grad(self, object grad, object x, object weight, double eps, object dx, object dweight, object dbias):
        """dx = (g - mean g - x^ mean(g x^)) / sqrt(var + eps) for g = grad weight, x^ = (x - mean) / sqrt(var + eps);
        dweight = sum of grad x^, dbias = sum of grad, over all axes but the last"""
        defaults().layer_norm_grad(self, grad, x, weight, eps, dx, dweight, dbias)

    cpdef batch_norm(self, object x, object weight, object bias, double eps, object out, object mean, object var):
        """out as in layer_norm, but with mean and var over all axes but the last; both are NaN where there are no rows"""
        defaults().batch_norm(self, x, weight, bias, eps, out, mean, var)

    cpdef batch_norm_grad(self, object grad, object x, object mean, object var, object weight, double eps, object dx,
                          object dweight, object dbias):
        """As layer_norm_grad, through the mean and var that batch_norm returned"""
        defaults().batch_norm_grad(self, grad, x, mean, var, weight, eps, dx, dweight, dbias)

    cpdef cross_entropy(self, object logits, object labels, object out):
        """out = -log softmax(logits)[label], over the last axis; labels are int64, every one in [0, logits.shape[-1])"""
        defaults().cross_entropy(self, logits, labels, out)

    cpdef cross_entropy_grad(self, object grad, object logits, object labels, object out):
        """out = (softmax(logits) - onehot(labels)) grad"""
        defaults().cross_entropy_grad(self, grad, logits, labels, out)

    cpdef attention(self, object q, object k, object v, object mask, bint causal, double scale, object out):
        """out = softmax(scale q k^T + mask) v; q (..., t, d), k (..., s, d), v (..., s, e), mask (..., t, s), out (..., t, e)

        A float mask is added, a bool one is True where a query may attend to a key; `causal` lets query i see the keys up to
        i + s - t. A row with nothing to attend to gives 0.
        """
        defaults().attention(self, q, k, v, mask, causal, scale, out)

    cpdef attention_grad(self, object grad, object q, object k, object v, object mask, bint causal, double scale, object dq,
                         object dk, object dv):
        """For p the softmax: dv = p^T grad; ds = p (dp - sum p dp) with dp = grad v^T; dq = scale ds k, dk = scale ds^T q"""
        defaults().attention_grad(self, grad, q, k, v, mask, causal, scale, dq, dk, dv)

    # ---- Optional: recurrent layers ------------------------------------------------------------
    # The gates of a cell lie side by side along the last axis. x is the part of their sums that comes from the input, y the
    # part that comes from the state, h W; bias, a vector or None, is added to y. gates may be None: not wanted.

    cpdef lstm_cell(self, object x, object y, object bias, object c, object h_out, object c_out, object gates):
        """i, f, g, o = x + (y + bias), g through tanh and the others through sigmoid; c_out = f c + i g; h_out = o tanh(c_out)

        x, y (B, 4H), c, h_out, c_out (B, H); gates (B, 4H) = i, f, g, o, which may be the view x or y; c_out may be c.
        """
        defaults().lstm_cell(self, x, y, bias, c, h_out, c_out, gates)

    cpdef lstm_cell_grad(self, object dy, object dh, object dc, object gates, object c, object c_out, object ds, object dc_out):
        """For d = dy + dh, the gradient of h_out, t = tanh(c_out) and e = dc + d o (1 - t^2):
        ds (B, 4H) = e g i (1 - i), e c f (1 - f), e i (1 - g^2), d t o (1 - o);  dc_out = e f, which may be dc
        """
        defaults().lstm_cell_grad(self, dy, dh, dc, gates, c, c_out, ds, dc_out)

    cpdef gru_cell(self, object x, object y, object bias, object h, object h_out, object gates):
        """r, z = sigmoid(x + (y + bias)), m = y + bias, n = tanh(x + r m);  h_out = n + z (h - n)

        x, y (B, 3H) have r, z, n; h, h_out (B, H); gates (B, 4H) = r, z, n, m.
        """
        defaults().gru_cell(self, x, y, bias, h, h_out, gates)

    cpdef gru_cell_grad(self, object dy, object dh, object h, object gates, object dx, object ds, object dh_out):
        """For d = dy + dh: dn = d (1 - z) (1 - n^2), dz = d (h - n) z (1 - z), dr = dn m r (1 - r);
        dx (B, 3H) = dr, dz, dn, of x;  ds (B, 3H) = dr, dz, dn r, of y;  dh_out = d z, which may be dh
        """
        defaults().gru_cell_grad(self, dy, dh, h, gates, dx, ds, dh_out)

    cpdef lstm(self, object x, object weight, object bias, object h, object c, object gates):
        """h[t + 1], c[t + 1], gates[t] = lstm_cell of x[t], h[t] weight and c[t], for t = 0, 1, ...

        x (T, B, 4H), weight (H, 4H), bias (4H,) or None, h and c (T + 1, B, H), whose first entries are given; without gates
        (T, B, 4H) there is one c (1, B, H), overwritten.
        """
        defaults().lstm(self, x, weight, bias, h, c, gates)

    cpdef lstm_grad(self, object dy, object weight, object c, object gates, object ds, object dh, object dc):
        """ds (T, B, 4H) = the gradient of x, for dy (T, B, H) that of h[1:]; dh, dc (B, H): from that of the last h and c (besides
        dy) to that of the first
        """
        defaults().lstm_grad(self, dy, weight, c, gates, ds, dh, dc)

    cpdef gru(self, object x, object weight, object bias, object h, object gates):
        """h[t + 1], gates[t] = gru_cell of x[t], h[t] weight and h[t]: shapes as in lstm, with 3H for x and the weight"""
        defaults().gru(self, x, weight, bias, h, gates)

    cpdef gru_grad(self, object dy, object weight, object h, object gates, object dx, object ds, object dh):
        """dx, ds (T, B, 3H) = the gradients of x and of h weight; dy and dh as in lstm_grad"""
        defaults().gru_grad(self, dy, weight, h, gates, dx, ds, dh)

    cpdef rnn(self, Op op, object x, object weight, object bias, object h):
        """h[t + 1] = op(x[t] + (h[t] weight + bias)): x (T, B, H), weight (H, H), h (T + 1, B, H); op is tanh or relu"""
        defaults().rnn(self, op, x, weight, bias, h)

    cpdef rnn_grad(self, Op op, object dy, object weight, object h, object ds, object dh):
        """ds (T, B, H) = the gradient of x; dy and dh as in lstm_grad"""
        defaults().rnn_grad(self, op, dy, weight, h, ds, dh)

    # ---- Optional: steps of optimizers, in place ---------------------------------------------------------------------
    # Lists of arrays, one entry for each parameter. Penalties of 0 are left out, whatever they would be multiplied by.

    cpdef sgd_step(self, list params, list grads, list u, double lr, double momentum, double dampening, double weight_decay,
                   double l1, bint nesterov, double correction):
        """g' = g + weight_decay p + l1 sign(p);  u = momentum u + (1 - dampening) g';  p -= lr u / correction

        Nesterov's step is along momentum u + (1 - dampening) g' instead of u. Where u is None, p -= lr g'.
        """
        defaults().sgd_step(self, params, grads, u, lr, momentum, dampening, weight_decay, l1, nesterov, correction)

    cpdef adam_step(self, list params, list grads, list m, list v, double lr, double beta1, double beta2, double eps,
                    double weight_decay, bint decoupled, double correction1, double correction2):
        """m = beta1 m + (1 - beta1) g';  v = beta2 v + (1 - beta2) g' g';
        p -= lr (m / correction1) / (sqrt(v / correction2) + eps), with g' as in sgd_step, or p -= lr weight_decay p first
        """
        defaults().adam_step(self, params, grads, m, v, lr, beta1, beta2, eps, weight_decay, decoupled, correction1, correction2)
