"""Ops one by one, values and gradients against NumPy and finite differences; then the engine."""

import numpy as np

from needle_nn.learning.expect import Checks, Wrong, close, same, slope, true

checks = Checks()
RNG = np.random.default_rng(0)
A, B = RNG.uniform(0.5, 2, (2, 3)), RNG.uniform(0.5, 2, (2, 3))
C = RNG.uniform(0.5, 2, (3, 4))
SIGNED = np.array([[-1.0, 0.7, 2.0], [0.3, -0.2, -3.0]])
OPS = [  # name, constants, NumPy's function, inputs, hint
    ("multiply", (), np.multiply, (A, B), "g b and g a: multiply(out_grad, node.inputs[1]), ..."),
    ("divide", (), np.divide, (A, B), "g / b and -g a / b^2"),
    ("mul_scalar", (-1.5,), np.multiply, (A,), "c g"),
    ("power_scalar", (3,), np.power, (A,), "g c a^(c-1)"),
    ("exp", (), np.exp, (A,), "g y: the result is node itself"),
    ("log", (), np.log, (A,), "g / a"),
    ("relu", (), lambda a: np.maximum(a, 0), (SIGNED,), "g where a > 0, else 0"),
    ("matmul", (), np.matmul, (A, C), "g b^T and a^T g, in this order"),
    ("transpose", (), lambda a: np.swapaxes(a, -1, -2), (np.stack([A, B, A + B, A * B]),), "the transposed of g"),
    ("reshape", ((3, 2),), np.reshape, (A,), "g in the shape of node.inputs[0]"),
    ("summation", (), lambda a, axes=None: np.sum(a, axes), (A,), "g repeated: reshape, then broadcast_to the input's shape"),
    ("summation", ((0,),), np.sum, (A,), "reshape g so that the axes summed over have size 1, then broadcast_to"),
    ("summation", ((1,),), np.sum, (A,), "reshape g so that the axes summed over have size 1, then broadcast_to"),
    ("broadcast_to", ((4, 2, 3),), np.broadcast_to, (A,), "sum g over the axes that were added, and those that had size 1"),
    ("broadcast_to", ((2, 3),), np.broadcast_to, (A[:, :1],), "sum g over axis 1, then reshape to (2, 1)"),
]  # fmt: skip
#: For each input, which inputs its gradient is computed from, besides out_grad.
NEEDED = {"multiply": [(1,), (0,)], "divide": [(1,), (0, 1)], "matmul": [(1,), (0,)]}
NEEDED |= {name: [(0,)] for name in ("power_scalar", "exp", "log")}


def tensor(student, array):
    return student.Tensor(np.asarray(array, np.float32))


def weights(shape):
    return np.cos(np.arange(np.prod(shape, dtype=int))).reshape(shape)


def made_of(tensor):
    """The ids of all that a Tensor was computed from, and its own."""
    found, stack = set(), [tensor]
    while stack:
        x = stack.pop()
        if id(x) not in found:
            found.add(id(x))
            stack += x.inputs or ()
    return found


def label(name, constants):
    return f"{name}({', '.join(['x', *map(str, constants)])})" if constants else name


def add_op(name, constants, reference, inputs, hint):
    @checks(f"{label(name, constants)}: values", "what `compute` returns, in NumPy")
    def values(student):
        got = getattr(student, name)(*[tensor(student, x) for x in inputs], *constants)
        close(label(name, constants), got, reference(*inputs, *constants))

    @checks(f"{label(name, constants)}: gradient", hint)
    def gradient(student):
        tensors = [tensor(student, x) for x in inputs]
        node = getattr(student, name)(*tensors, *constants)
        g = weights(np.shape(reference(*inputs, *constants)))
        out_grad = tensor(student, g)
        parts = node.op.gradient(out_grad, node)
        parts = parts if isinstance(parts, (tuple, list)) else (parts,)
        same("how many gradients are returned", len(parts), len(inputs))
        for i, part in enumerate(parts):
            if not hasattr(part, "inputs"):
                raise Wrong(f"gradient of input {i}: expected a Tensor, given {type(part).__name__}")
            expected = slope(lambda *x: float((g * reference(*x, *constants)).sum()), inputs, i)
            close(f"gradient of input {i}", part, expected, 1e-3)
            used = made_of(part)
            lost = [] if id(out_grad) in used else ["out_grad"]
            lost += [f"node.inputs[{k}]" for k in NEEDED.get(name, [()] * 2)[i] if id(tensors[k]) not in used]
            true(f"gradient of input {i}: not made of ops, it does not lead back to {' and '.join(lost)}", not lost)


for row in OPS:
    add_op(*row)


# ---- The engine ----


@checks(
    "find_topo_sort: every node after its inputs",
    "append a node when its inputs are done; remember the nodes you have seen",
)
def order(student):
    a, b = tensor(student, A), tensor(student, B)
    c = student.add(a, b)
    d = student.add(c, a)
    e = student.add(d, c)
    found = student.find_topo_sort([e])
    names = {id(a): "a", id(b): "b", id(c): "c=a+b", id(d): "d=c+a", id(e): "e=d+c"}
    same("the order of e = d + c, d = c + a, c = a + b", [names.get(id(x), "?") for x in found], list(names.values()))


@checks("find_topo_sort: a graph 5000 nodes deep", "a list of (node, inputs_done) as the stack instead of recursion")
def deep(student):
    x = y = tensor(student, A)
    for _ in range(5000):
        y = student.add(y, x)
    same("how many nodes are found", len(student.find_topo_sort([y])), 5001)


@checks("backward: a chain", "go through the sorted nodes in reverse; at a leaf store what has arrived in .grad")
def chain(student):
    x = tensor(student, A)
    student.compute_gradient_of_variables(student.exp(student.log(student.mul_scalar(x, 2.0))), tensor(student, B))
    close("gradient of exp(log(2 x))", x.grad, 2 * B, 1e-3)


@checks(
    "backward: a value used several times", "what arrives at a node on different ways is added up before it goes on"
)
def fan_out(student):
    x = tensor(student, A)
    y = student.multiply(x, x)
    student.compute_gradient_of_variables(student.add(student.multiply(y, x), y), tensor(student, np.ones((2, 3))))
    close("gradient of x^3 + x^2, made of products", x.grad, 3 * A**2 + 2 * A, 1e-3)


@checks("backward: a second call", "do not keep sums from one call to the next: .grad is overwritten")
def again(student):
    x = tensor(student, A)
    for _ in range(2):
        student.compute_gradient_of_variables(student.multiply(x, x), tensor(student, np.ones((2, 3))))
        close("gradient of x^2, computed twice", x.grad, 2 * A, 1e-3)


@checks("backward: a network", "compare shapes first: each gradient has the shape of its input")
def network(student):
    x, w1, w2 = SIGNED, C - 1, RNG.normal(size=(4, 2))
    tensors = [tensor(student, each) for each in (x, w1, w2)]
    hidden = student.relu(student.matmul(tensors[0], tensors[1]))
    out = student.summation(student.exp(student.matmul(hidden, tensors[2])))
    out.backward()
    function = lambda *v: float(np.exp(np.maximum(v[0] @ v[1], 0) @ v[2]).sum())  # noqa: E731
    for i, name in enumerate(("x", "w1", "w2")):
        true(f"{name}.grad is None: expected the gradient of the loss", tensors[i].grad is not None)
        close(f"{name}.grad of sum(exp(relu(x w1) w2))", tensors[i].grad, slope(function, (x, w1, w2), i), 2e-3)


@checks("backward: a gradient of a gradient", "gradients are made of ops (add, multiply, ...), not of NumPy arrays")
def second(student):
    x = tensor(student, A)
    y = student.summation(student.power_scalar(x, 4))
    y.backward()
    first = x.grad
    first.backward()
    close("second derivative of x^4", x.grad, 12 * A**2, 1e-3)
