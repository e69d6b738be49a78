"""Mistakes that the checks of the course have to find: chapter, title, what is appended to the solution (or replaced in it), and
a check that has to fail.
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    chapter: int
    title: str
    check: str
    appended: str = ""
    replaced: tuple[str, str] = ("", "")
    ending: str = ".py"


def m(chapter, check, title, appended):
    return Mutation(chapter, title, check, appended)


def c(check, title, old, new):
    return Mutation(4, title, check, replaced=(old, new), ending=".c")


def cu(check, title, old, new):
    return Mutation(5, title, check, replaced=(old, new), ending=".cu")


NUMPY = "import numpy as np\n"
STEP = "softmax_regression_epoch: "
CHAPTER1 = [
    m(1, "softmax: values", "sums columns", "def softmax(Z):\n    import numpy as np\n    return np.exp(Z) / np.exp(Z).sum(0)"),
    m(1, "softmax: logits of 1000", "overflows", NUMPY + "softmax = lambda Z: np.exp(Z) / np.exp(Z).sum(1, keepdims=True)"),
    m(1, "softmax: leaves its argument as it was", "subtracts in place",
      "right = softmax\ndef softmax(Z):\n    Z -= Z.max(1, keepdims=True)\n    return right(Z)"),
    m(1, "softmax_loss: values", "sums over the batch", "mean = softmax_loss\nsoftmax_loss = lambda Z, y: mean(Z, y) * len(y)"),
    m(1, "softmax_loss: logits of 1000", "overflows",
      NUMPY + "softmax_loss = lambda Z, y: np.mean(np.log(np.exp(Z).sum(1)) - Z[np.arange(len(y)), y])"),
    m(1, STEP + "one batch", "climbs", "right = descend\ndescend = lambda X, y, w, f, lr, b: right(X, y, w, f, -lr, b)"),
    m(1, STEP + "one batch", "changes a copy",
      "right = descend\ndescend = lambda X, y, w, f, lr, b: right(X, y, [x.copy() for x in w], f, lr, b)"),
    m(1, STEP + "several batches", "one batch of everything",
      "right = descend\ndescend = lambda X, y, w, f, lr, b: right(X, y, w, f, lr, len(X))"),
    m(1, STEP + "several batches", "leaves the short batch out",
      "right = descend\ndescend = lambda X, y, w, f, lr, b: right(X[:len(X) // b * b], y, w, f, lr, b)"),
    m(1, "nn_epoch: one batch", "changes W1 before the gradient of W2",
      "def nn_epoch(X, y, W1, W2, lr=0.1, batch=100):\n"
      "    for i in range(0, len(X), batch):\n"
      "        x, t = X[i : i + batch], y[i : i + batch]\n"
      "        descend(x, t, [W1], lambda x, w: ndl.relu(x @ w) @ ndl.Tensor(W2, dtype='float64'), lr, batch)\n"
      "        descend(x, t, [W2], lambda x, w: ndl.relu(x @ ndl.Tensor(W1, dtype='float64')) @ w, lr, batch)"),
    m(1, "nn_epoch: several batches", "one batch of everything",
      "right = nn_epoch\nnn_epoch = lambda X, y, W1, W2, lr, batch: right(X, y, W1, W2, lr, len(X))"),
    m(1, "it learns handwritten digits", "does nothing", "nn_epoch = lambda *a, **k: None"),
]  # fmt: skip

OPS = {"multiply": "", "divide": "", "exp": "", "log": "", "relu": "", "matmul": "", "transpose": ""}
OPS |= {"mul_scalar": "(x, -1.5)", "power_scalar": "(x, 3)", "reshape": "(x, (3, 2))"}
FORMS = [(name, name + form) for name, form in OPS.items()]
FORMS += [("summation", "summation" + form) for form in ("", "(x, (0,))", "(x, (1,))")]
FORMS += [("broadcast_to", "broadcast_to" + form) for form in ("(x, (4, 2, 3))", "(x, (2, 3))")]
VALUES = """
right = {0}
def {0}(*a):
    y = right(*a)
    return Tensor(y.numpy() + 1)
"""
GRADIENT = """
right = {0}
class Op:
    def __init__(self, op): self.op = op
    def gradient(self, g, node):
        parts = self.op.gradient(g, node.y)
        return tuple(negate(p) for p in (parts if isinstance(parts, tuple) else (parts,)))
class Node:
    def __init__(self, y): self.y, self.op, self.inputs, self.shape = y, Op(y.op), y.inputs, y.shape
    def __getattr__(self, name): return getattr(self.y, name)
def {0}(*a):
    return Node(right(*a))
"""
WALK = """
def compute_gradient_of_variables(output, out_grad):
    arrived = {id(output): out_grad}
    for node in reversed(find_topo_sort([output])):
        if node.op is None:
            node.grad = arrived.get(id(node))
            continue
        grads = node.op.gradient(arrived[id(node)], node)
        for x, part in zip(node.inputs, grads if isinstance(grads, tuple) else (grads,)):
            SEND
Tensor.backward = lambda self: compute_gradient_of_variables(self, Tensor(__import__("numpy").ones(self.shape, "float32")))
"""
PLAIN = """
class Tensor:
    def __init__(self, data, op=None, inputs=()):
        self.data, self.op, self.inputs, self.grad = data, op, inputs, None
        self.shape = data.shape
    def numpy(self): return self.data
"""
CHAPTER2 = [m(2, f"{form}: values", f"{name} is off by one", VALUES.format(name)) for name, form in FORMS]
CHAPTER2 += [m(2, f"{form}: gradient", f"the sign of {name}'s gradient", GRADIENT.format(name)) for name, form in FORMS]
CHAPTER2 += [
    m(
        2,
        f"{form}: gradient",
        f"{name}'s gradient without a graph",
        GRADIENT.format(name).replace("negate(p)", "Tensor(p.numpy())"),
    )
    for name, form in FORMS
]
CHAPTER2 += [
    m(2, "transpose: values", "all axes", "transpose = lambda x: Tensor(x.numpy().T)"),
    m(2, "find_topo_sort: every node after its inputs", "reversed",
      "right = find_topo_sort\nfind_topo_sort = lambda nodes: right(nodes)[::-1]"),
    m(2, "find_topo_sort: a graph 5000 nodes deep", "recursion",
      "def visit(x, seen, out):\n"
      "    if id(x) not in seen:\n"
      "        seen.add(id(x))\n"
      "        [visit(i, seen, out) for i in x.inputs]\n"
      "        out.append(x)\n"
      "    return out\n"
      "find_topo_sort = lambda nodes: visit(nodes[0], set(), [])"),
    m(2, "backward: a chain", "nothing arrives", "compute_gradient_of_variables = lambda y, g: None"),
    Mutation(2, "overwrites what has arrived", "backward: a value used several times",
             WALK.replace("SEND", "arrived[id(x)] = part"), ending="toy"),
    Mutation(2, "keeps sums between calls", "backward: a second call",
             WALK.replace("SEND", "arrived[id(x)] = add(arrived[id(x)], part) if id(x) in arrived else part")
             .replace("node.grad = arrived.get(id(node))",
                      "g = arrived[id(node)]; node.grad = add(g, node.grad) if node.grad else g"),
             ending="toy"),
    Mutation(2, "breadth first", "backward: a network", WALK.replace("SEND", "arrived[id(x)] = negate(part)"), ending="toy"),
    Mutation(2, "gradients without a graph", "backward: a gradient of a gradient",
             WALK.replace("SEND", "arrived[id(x)] = Tensor(part.numpy())"), ending="toy"),
]  # fmt: skip

NORM = """
from needle_nn.nn import {0} as right
class {0}(right):
    def forward(self, x):
        {1}
"""
WALKER = """
right = Module.parameters
def parameters(self):
    {0}
Module.parameters = parameters
"""
LEARN = "it learns handwritten digits"
CHAPTER3 = [
    m(3, "Module.parameters: in attributes, lists, tuples and dicts", "attributes only",
      "class Module(Module):\n    def parameters(self): return [v for v in vars(self).values() if isinstance(v, Parameter)]"),
    m(3, "Module.parameters: each once, in order", "twice",
      "class Module(Module):\n    def parameters(self): return super().parameters() * 2"),
    m(3, "Module.train and eval", "the outer one only",
      "class Module(Module):\n    def eval(self): self.training = False\n    def train(self): self.training = True"),
    m(3, "Linear", "no bias", NORM.format("Linear", "return x @ self.weight")),
    m(3, "Sequential and Residual", "no sum", NORM.format("Residual", "return self.fn(x)")),
    m(3, "Dropout: training", "not divided by 1 - p", NORM.format("Dropout", "return super().forward(x) * (1 - self.p)")),
    m(3, "Dropout: training", "keeps with probability p",
      "from needle_nn.nn import Dropout as right\nDropout = lambda p: right(1 - p)"),
    m(3, "Dropout: evaluation", "always drops", NORM.format("Dropout", "self.training = True; return super().forward(x)")),
    m(3, "LayerNorm1d", "eps is forgotten",
      NORM.format("LayerNorm1d", "x = x - x.mean(1, True); return x / (x * x).mean(1, True) ** 0.5 * self.weight + self.bias")),
    m(3, "LayerNorm1d", "along axis 0", NORM.format("LayerNorm1d", "return super().forward(x[:4].T).T")),
    m(3, "BatchNorm1d: training", "in evaluation", NORM.format("BatchNorm1d", "self.training = False; return super().forward(x)")),
    m(3, "BatchNorm1d: running statistics", "momentum on the other side",
      "from needle_nn.nn import BatchNorm1d as right\nBatchNorm1d = lambda dim, momentum=0.1: right(dim, momentum=1 - momentum)"),
    m(3, "BatchNorm1d: running statistics", "hold a graph",
      NORM.format("BatchNorm1d", "y = super().forward(x); self.running_mean = self.running_mean + 0 * x.mean(0); return y")),
    m(3, "SGD: plain", "the first parameter only", "right = SGD\nSGD = lambda p, **k: right(list(p)[:1], **k)"),
    m(3, "Adam", "the first parameter only", "right = Adam\nAdam = lambda p, **k: right(list(p)[:1], **k)"),
    m(3, "SGD: plain", "climbs",
      "right = SGD\nclass SGD(right):\n    def __init__(self, p, lr): super().__init__(p, lr)\n"
      "    def step(self):\n        for p in self.params:\n            if p.grad is not None: p.data = p.data + 0.1 * p.grad.data"),
    m(3, "SGD: momentum and weight decay", "sums of gradients", "right = SGD\nSGD = lambda *a, **k: right(*a, **k, dampening=0)"),
    m(3, "Adam", "no weight decay", "right = Adam\nAdam = lambda p, weight_decay=0, **k: right(p, **k)"),
    m(3, "a step keeps parameters what they are", "changes the gradient",
      "right = SGD\nclass SGD(right):\n    def step(self):\n        super().step()\n"
      "        for p in self.params: p.grad = None if p.grad is None else p.grad * 2"),
    m(3, LEARN, "never steps", "right = Adam\nclass Adam(right):\n    def step(self): pass"),
]  # fmt: skip

VIEW = "right = {0}\ndef {0}(v, *a):\n    r = right(v, *a)\n    return {1}"
CHAPTER4 = [
    m(4, "compact_strides", "column-major", "right = compact_strides\ncompact_strides = lambda s: right(s[::-1])[::-1]"),
    m(4, "is_compact", "does not look at the offset",
      "right = is_compact\nis_compact = lambda v: right(View(v.shape, v.strides))"),
    m(4, "permute", "shape only", VIEW.format("permute", "View(r.shape, v.strides, r.offset)")),
    m(4, "permute", "loses the offset", VIEW.format("permute", "View(r.shape, r.strides)")),
    m(4, "broadcast_to", "keeps strides", VIEW.format("broadcast_to", "View(r.shape, tuple(s or 1 for s in r.strides), r.offset)")),
    m(4, "broadcast_to: what is impossible", "never refuses",
      "right = broadcast_to\ndef broadcast_to(v, s):\n    try: return right(v, s)\n    except ValueError: return v"),
    m(4, "slice_axis", "rounds down",
      "right = slice_axis\ndef slice_axis(v, axis, a, b, s):\n    return right(v, axis, a, a + (b - a) // s * s, s)"),
    m(4, "flip", "offset stays", VIEW.format("flip", "View(r.shape, r.strides, v.offset)")),
    c("compact in C: a compact array", "stores one element too many", "i < n; i++) {\n        out[i] = *at",
      "i <= n; i++) {\n        out[i] = *at"),
    c("compact in C: transposed, sliced, flipped, broadcast", "carries wrongly", "at -= strides[axis] * shape[axis];", ""),
    c("compact in C: transposed, sliced, flipped, broadcast", "no offset", "a + offset", "a"),
    c("add in C", "forgets the last", "i < n; i++) out[i] = a[i] + b[i]", "i + 1 < n; i++) out[i] = a[i] + b[i]"),
    c("add in C", "writes into an input", "out[i] = a[i] + b[i]", "((float *)a)[i] = out[i] = a[i] + b[i]"),
    c("add in C", "segmentation fault", "out[i] = a[i] + b[i]", "out[i + (1LL << 40)] = a[i] + b[i]"),
    c("row_sums in C", "a[i * rows + j]", "a[i * columns + j]", "a[i * rows + j]"),
    c("row_sums in C: a million small numbers", "adds in float", "double sum", "float sum"),
    c("matmul in C", "adds to what was there", "out[i] = 0;", "out[i] += 0;"),
    c("matmul in C", "rows of b", "b[p * n + j]", "b[p * k + j]"),
]  # fmt: skip

BARRIER = "__syncthreads();\n"
CHAPTER5 = [
    cu("saxpy: as many threads as elements", "one too many", "FOR_EACH(i, n)", "FOR_EACH(i, n + 1)"),
    cu("saxpy: more threads than elements", "no bound", "FOR_EACH(i, n)", "i64 i = THREAD;"),
    cu("saxpy: fewer threads than elements", "no loop", "FOR_EACH(i, n)", "i64 i = THREAD; if (i < n)"),
    cu("transpose: whole tiles", "no barrier", f"    {BARRIER}    i = (i64)blockIdx.x", "    i = (i64)blockIdx.x"),
    cu("transpose: whole tiles", "a copy", "tile[threadIdx.x][threadIdx.y];", "tile[threadIdx.y][threadIdx.x];"),
    cu("transpose: sizes that no tile divides", "bounds not swapped", "i < columns && j < rows", "i < rows && j < columns"),
    cu("transpose: goes through shared memory, along rows", "no tile", "__shared__ float tile[TILE][TILE + 1]",
       "float tile[TILE][TILE + 1]"),
    cu("transpose: goes through shared memory, along rows", "a tile that nobody reads",
       "out[i * rows + j] = tile[threadIdx.x][threadIdx.y];",
       "out[i * rows + j] = a[j * columns + i];"),
    cu("transpose: goes through shared memory, along rows", "loads columns",
       "if (i < rows && j < columns) tile[threadIdx.y][threadIdx.x] = a[i * columns + j];",
       "i += (int)threadIdx.x - (int)threadIdx.y, j += (int)threadIdx.y - (int)threadIdx.x;\n"
       "    if (i < rows && j < columns) tile[threadIdx.x][threadIdx.y] = a[i * columns + j];"),
    cu("transpose: goes through shared memory, along rows", "stores columns",
       "if (i < columns && j < rows) out[i * rows + j] = tile[threadIdx.x][threadIdx.y];",
       "i += (int)threadIdx.x - (int)threadIdx.y, j += (int)threadIdx.y - (int)threadIdx.x;\n"
       "    if (i < columns && j < rows) out[i * rows + j] = tile[threadIdx.y][threadIdx.x];"),
    cu("transpose: goes through shared memory, along rows", "does not compile", "float tile[TILE]", "flaot tile[TILE]"),
    cu("row_sums: a row as long as the block", "reads before all stored",
       f"        {BARRIER}        if (threadIdx.x < half)", "        if (threadIdx.x < half)"),
    cu("row_sums: longer rows, shorter rows", "one element per thread", "for (i64 j = threadIdx.x; j < columns; j += blockDim.x)",
       "i64 j = threadIdx.x; if (j < columns)"),
    cu("row_sums: every order of threads, every block", "barrier for some",
       f"        {BARRIER}        if (threadIdx.x < half) sums", "        if (threadIdx.x < half) __syncthreads(), sums"),
    cu("matmul: one tile", "columns of the right tile", "right[p][x]", "right[x][p]"),
    cu("matmul: several tiles", "no second barrier", f"right[p][x];\n        {BARRIER}", "right[p][x];\n"),
    cu("matmul: sizes that no tile divides", "loads beyond b", "start + y < k && j < n ?", "start + y < k ?"),
    cu("matmul: goes through shared memory", "no tiles", "__shared__ float left[TILE][TILE], right[TILE][TILE]",
       "float left[TILE][TILE], right[TILE][TILE]"),
    cu("matmul: goes through shared memory", "tiles that nobody reads", "sum += left[y][p] * right[p][x];",
       "if (i < m && j < n && start + p < k) sum += a[i * k + start + p] * b[(start + p) * n + j];"),
]  # fmt: skip

LSTM = "right = lstm\ndef lstm(X, h, c, W_ih, W_hh, bias):\n    "
LAYER = "right = TransformerLayer\ndef TransformerLayer(f, num_head, dim_head, hidden_size):\n"
LAYER += "    made = right(f, num_head, dim_head, hidden_size)\n    "
CHAPTER6 = [
    m(6, "conv: no padding", "flips the kernel", "right = conv\nconv = lambda x, w, **k: right(x, w[::-1], **k)"),
    m(6, "conv: padding", "none", "right = conv\nconv = lambda x, w, stride, padding: right(x, w, stride, 0)"),
    m(6, "conv: stride", "1", "right = conv\nconv = lambda x, w, stride, padding: right(x, w, 1, padding)"),
    m(6, "conv_gradients: of the weight", "the sign",
      "right = conv_gradients\ndef conv_gradients(*a, **k):\n    x, w = right(*a, **k)\n    return x, -w"),
    m(6, "conv_gradients: of the image", "the sign",
      "right = conv_gradients\ndef conv_gradients(*a, **k):\n    x, w = right(*a, **k)\n    return -x, w"),
    m(6, "lstm_cell", "forget gate is not used", "right = lstm_cell\nlstm_cell = lambda x, h, c, *w: right(x, h, c * 0, *w)"),
    m(6, "lstm: five steps", "stays at the start",
      LSTM + "h1, c1 = lstm_cell(X[0], h, c, W_ih, W_hh, bias)\n    return right(X, h, c, W_ih, W_hh, bias)[0], h1, c1"),
    m(6, "lstm: gradients through time", "cut off", LSTM + "return right(X, h.detach(), c, W_ih, W_hh, bias)"),
    m(6, "attention", "no scale", "right = attention\nattention = lambda q, *a, **k: right(q * 2.0, *a, **k)"),
    m(6, "attention: causal", "sees everything", "right = attention\nattention = lambda q, k, v, causal=False: right(q, k, v)"),
    m(6, "TransformerLayer: shape and parameters", "one head's width", LAYER + "return right(f, 1, dim_head, hidden_size)"),
    m(6, "TransformerLayer: causal", "sees everything", LAYER + "made.attention.attn.causal = False\n    return made"),
    m(6, "TransformerLayer: residual paths", "none around attention",
      LAYER + "import types\n    made.forward = lambda x: made.attention(x) + made.mlp(x)\n    return made"),
    m(6, "TransformerLayer: gradients reach every parameter", "cut off",
      LAYER + "made.forward = lambda x: (lambda z: z + made.mlp(z))(x + made.attention(x).detach())\n    return made"),
    m(6, "TransformerLayer: gradients reach every parameter", "no perceptron",
      LAYER + "made.forward = lambda x: (lambda z: z + made.mlp(z) * 0.0)(x + made.attention(x))\n    return made"),
    m(6, "it learns to look back", "no attention", LAYER + "made.forward = lambda x: x + made.mlp(x)\n    return made"),
]  # fmt: skip

ALL = [*CHAPTER1, *CHAPTER2, *CHAPTER3, *CHAPTER4, *CHAPTER5, *CHAPTER6]
