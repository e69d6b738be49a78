"""Cases of arrays and small graphs: per-op overhead, curves over sizes, strides, matrix products."""

from typing import Any

from benchmarks.cases import GRAPHS, TENSORS, Case

SIZES = [2 + i / 2 for i in range(12)]  # powers of ten
SIGMOID = "1 / (1 + np.exp(-a))"
TWO, SQUARE = "a, b = A(8, 8), A(8, 8)", "a, b = A({0}, {0}), A({0}, {0})"
THREE = "a, b, c = P(8, 8), P(8, 8), P(8, 8)"
FOUR = "((a * b + c) * a).sum()"
MATRIX, WIDE = "a = A(4096, 4096)", "a, b = A(2000, 1000), {}"
ROWS = "a = A(50000, 128); i = I(8192, 50000); v = A(8192, 128)"

OVERHEAD = [
    Case("overhead", "add 8x8", TWO, "a + b"),
    Case("overhead", "multiply 8x8 by 2.0", TWO, "a * 2.0"),
    Case("overhead", "matmul 8x8", TWO, "a @ b"),
    Case("overhead", "slice a[2:6, 1:7]", TWO, "a[2:6, 1:7]"),
    Case("overhead", "reshape 8x8 to 4x16", TWO, "a.reshape(4, 16)"),
    Case("overhead", "sum 8x8", TWO, "a.sum()"),
    Case("overhead", "recorded add 8x8", THREE, "a + b", of=TENSORS),
    Case("overhead", "recorded multiply 8x8 by 2.0", THREE, "a * 2.0", of=TENSORS),
    Case("overhead", "recorded matmul 8x8", THREE, "a @ b", of=TENSORS),
    Case("overhead", "recorded slice a[2:6, 1:7]", THREE, "a[2:6, 1:7]", of=TENSORS),
    Case("overhead", "recorded sum 8x8", THREE, "a.sum()", of=TENSORS),
]

LAYER = "x, w, b = C(32, 16), P(16, 16), P(1, 16)"
GRAPH = [
    Case("small graphs", "((a*b + c)*a).sum() 8x8, forward", THREE, FOUR, of=GRAPHS),
    Case("small graphs", "((a*b + c)*a).sum() 8x8, forward + backward", THREE, FOUR, of=GRAPHS, backward=True),
    Case("small graphs", "chain of 20 adds 8x8, forward + backward", THREE, "(a" + " + b" * 20 + ").sum()",
         of=GRAPHS, backward=True),
    Case("small graphs", "tanh(x @ w + b).mean() 32x16, forward + backward", LAYER, needle="ndl.tanh(x @ w + b).mean()",
         torch="torch.tanh(x @ w + b).mean()", jax="jnp.tanh(x @ w + b).mean()", of=GRAPHS, backward=True),
]  # fmt: skip


def curve(op: str, run: dict[str, Any], arrays: str) -> list[Case]:
    return [
        Case("curves", f"{op} 10^{p:g}", arrays.format(n=n), elements=n, **run)
        for p, n in ((p, round(10**p)) for p in SIZES)
    ]


EXP = {"needle": "a.exp()", "numpy": "np.exp(a)", "torch": "torch.exp(a)", "jax": "jnp.exp(a)"}
CURVES = [
    *curve("add", {"run": "a + b"}, "a, b = A({n}), A({n})"),
    *curve("exp", EXP, "a = A({n})"),
    *curve("sum", {"run": "a.sum()"}, "a = A({n})"),
]


def math(op: str, power: int, name: str, numpy: str = "", jax: str = "") -> Case:
    """A function of one array of 2^power elements; `a.op()` in NumPy and JAX unless they spell it otherwise."""
    snippets = {"needle": f"a.{op}()", "numpy": numpy or f"np.{op}(a)", "torch": f"torch.{op}(a)"}
    made: dict[str, Any] = {**snippets, "jax": jax or f"jnp.{op}(a)"}
    return Case("elementwise", f"{op} {name}", f"a = A(1 << {power})", elements=1 << power, **made)


ELEMENTWISE = [
    Case("elementwise", "add 64k", "a, b = A(1 << 16), A(1 << 16)", "a + b", elements=1 << 16),
    Case("elementwise", "multiply 64k by 2.0", "a = A(1 << 16)", "a * 2.0", elements=1 << 16),
    Case("elementwise", "add 16M", "a, b = A(1 << 24), A(1 << 24)", "a + b", elements=1 << 24),
    Case("elementwise", "multiply 16M by 2.0", "a = A(1 << 24)", "a * 2.0", elements=1 << 24),
    *[math("exp", power, name) for power, name in ((20, "1M"), (22, "4M"), (24, "16M"))],
    *[math("tanh", power, name) for power, name in ((20, "1M"), (22, "4M"), (24, "16M"))],
    math("log", 22, "4M"),
    math("sigmoid", 22, "4M", SIGMOID, "jax.nn.sigmoid(a)"),
    Case("elementwise", "tanh(a*b + c) 1M, forward + backward", "a, b, c = (P(1 << 20) for _ in range(3))",
         needle="ndl.tanh(a * b + c)", torch="torch.tanh(a * b + c)", jax="jnp.tanh(a * b + c)", of=GRAPHS,
         backward=True, elements=1 << 20),
]  # fmt: skip

REDUCTIONS = [
    *[
        Case("reductions", f"sum {name}", f"a = A(1 << {power})", "a.sum()", elements=1 << power)
        for power, name in ((20, "1M"), (22, "4M"), (24, "16M"))
    ],
    Case("reductions", "max 16M", "a = A(1 << 24)", "a.max()", elements=1 << 24),
    Case("reductions", "sum 4096x4096 over axis 0", MATRIX, "a.sum(0)", elements=1 << 24),
    Case("reductions", "sum 4096x4096 over axis 1", MATRIX, "a.sum(1)", elements=1 << 24),
    Case("reductions", "max 4096x4096 over axis 1", MATRIX, "a.max(1)", torch="a.amax(1)", elements=1 << 24),
    Case("reductions", "sum 4096x10 over axis 1", "a = A(4096, 10)", "a.sum(1)", elements=40960),
    Case("reductions", "max 4096x10 over axis 1", "a = A(4096, 10)", "a.max(1)", torch="a.amax(1)", elements=40960),
    Case("reductions", "sum 32x64x4096 over axis 1", "a = A(32, 64, 4096)", "a.sum(1)", elements=1 << 23),
]

STRIDED = [
    Case("strided", "add transposed 2000x1000", WIDE.format("A(1000, 2000).T"), "a + b"),
    Case("strided", "add row to 2000x1000", WIDE.format("A(1000)"), "a + b"),
    Case("strided", "add column to 2000x1000", WIDE.format("A(2000, 1)"), "a + b"),
    Case("strided", "add every second column", "a, b = A(2000, 2000)[:, ::2], A(2000, 1000)", "a + b"),
    Case("strided", "copy transposed 2000x1000", "a = A(1000, 2000).T", "a.copy()", torch="a.contiguous()",
         of=("needle", "numpy", "torch")),
    Case("strided", "sum of transposed 2000x1000 over axis 1", "a = A(1000, 2000).T", "a.sum(1)"),
    Case("strided", "take 8192 of 50000x128 rows", ROWS, needle="nd.take(a, i, axis=0)", numpy="np.take(a, i, axis=0)",
         torch="a.index_select(0, i)", jax="jnp.take(a, i, axis=0)"),
    Case("strided", "add 8192 rows into 50000x128", ROWS, needle="nd.scatter_add(a, i, v)", numpy="np.add.at(a, i, v)",
         torch="a.index_add_(0, i, v)", of=("needle", "numpy", "torch"), after="a"),
]  # fmt: skip


def product(name: str, a: str, b: str) -> Case:
    """`a @ b` of arrays made by these expressions."""
    return Case("matmul", name, f"a, b = {a}, {b}", "a @ b")


MATMUL = [
    *[product(f"{n}^3", f"A({n}, {n})", f"A({n}, {n})") for n in (16, 64, 128, 256, 512, 1024)],
    product("512^3, a.T @ b", "A(512, 512).T", "A(512, 512)"),
    product("512^3, a @ b.T", "A(512, 512)", "A(512, 512).T"),
    product("4096x16 @ 16x4096", "A(4096, 16)", "A(16, 4096)"),
    product("16x4096 @ 4096x16", "A(16, 4096)", "A(4096, 16)"),
    product("1x1024 @ 1024x1024", "A(1, 1024)", "A(1024, 1024)"),
    product("100x784 @ 784x100", "A(100, 784)", "A(784, 100)"),
    product("700x200 @ 200x10000", "A(700, 200)", "A(200, 10000)"),
    product("batched 64 x 64^3", "A(64, 64, 64)", "A(64, 64, 64)"),
    product("batched 512 x 16^3", "A(512, 16, 16)", "A(512, 16, 16)"),
    product("batched 128 x 35x32 @ 32x35", "A(128, 35, 32)", "A(128, 32, 35)"),
    product("batched 8 x 256^3", "A(8, 256, 256)", "A(8, 256, 256)"),
]

CASES = [*OVERHEAD, *GRAPH, *CURVES, *ELEMENTWISE, *REDUCTIONS, *STRIDED, *MATMUL]
