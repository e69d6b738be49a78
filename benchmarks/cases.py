"""What is measured: one row per case. A row is set up once per process, then its expression is timed.

In a snippet `nd`, `np` and `torch` are the framework's module, `A(*shape)` makes a float32 array of it with values in
[0, 1), `I(n, high)` an int64 array, `P(*shape)` a Tensor that requires a gradient, `model(name)` the train step of a
model in models.py. `run` is the expression for all where they spell it alike; `needle`, `numpy` and `torch` replace it.
A case is measured in the frameworks that `of` names.
"""

from dataclasses import dataclass

FRAMEWORKS = ("needle", "numpy", "torch", "jax")
ARRAYS, TENSORS = FRAMEWORKS[:3], ("needle", "torch")


@dataclass(frozen=True)
class Case:
    family: str
    name: str
    setup: str
    run: str = ""
    needle: str = ""
    numpy: str = ""
    torch: str = ""
    elements: int = 0  # for times per element
    of: tuple[str, ...] = ARRAYS

    def snippet(self, framework: str) -> str:
        return getattr(self, framework, "") or self.run


CURVE = [2, 3, 4, 5, 5.5, 6, 6.5, 7, 7.4]
SOFTMAX = "np.divide(e := np.exp(a - a.max(1, keepdims=True)), e.sum(1, keepdims=True))"
SIGMOID = "1 / (1 + np.exp(-a))"
MATRIX, SQUARE = "a = A(4096, 4096)", "a, b = A({0}, {0}), A({0}, {0})"
ROWS = "a = A(50000, 128); i = I(8192, 50000); v = A(8192, 128)"
TAKE = ("nd.take(a, i, axis=0)", "np.take(a, i, axis=0)", "a.index_select(0, i)")
SCATTER = ("nd.scatter_add(a, i, v)", "np.add.at(a, i, v)", "a.index_add_(0, i, v)")

CASES = [
    Case("overhead", "add 8x8", "a, b = A(8, 8), A(8, 8)", "a + b"),
    Case("overhead", "multiply 8x8 by 2.0", "a = A(8, 8)", "a * 2.0"),
    Case("overhead", "slice a[2:6, 1:7]", "a = A(8, 8)", "a[2:6, 1:7]"),
    Case("overhead", "reshape 8x8 to 4x16", "a = A(8, 8)", "a.reshape(4, 16)"),
    Case("overhead", "sum 8x8", "a = A(8, 8)", "a.sum()"),
    Case("overhead", "matmul 8x8", "a, b = A(8, 8), A(8, 8)", "a @ b"),
    *[
        Case("curve", f"add 10^{p}", "a, b = A({0}), A({0})".format(n := round(10**p)), "a + b", elements=n)
        for p in CURVE
    ],
    Case("elementwise", "add 16M", "a, b = A(1 << 24), A(1 << 24)", "a + b", elements=1 << 24),
    Case("elementwise", "exp 4M", "a = A(1 << 22)", "", "a.exp()", "np.exp(a)", "torch.exp(a)", 1 << 22),
    Case("elementwise", "log 4M", "a = A(1 << 22)", "", "a.log()", "np.log(a)", "torch.log(a)", 1 << 22),
    Case("elementwise", "tanh 4M", "a = A(1 << 22)", "", "a.tanh()", "np.tanh(a)", "torch.tanh(a)", 1 << 22),
    Case("elementwise", "sigmoid 4M", "a = A(1 << 22)", "", "a.sigmoid()", SIGMOID, "torch.sigmoid(a)", 1 << 22),
    Case("reductions", "sum 16M", "a = A(1 << 24)", "a.sum()", elements=1 << 24),
    Case("reductions", "max 16M", "a = A(1 << 24)", "a.max()", elements=1 << 24),
    Case("reductions", "sum 4096x4096 over axis 0", MATRIX, "a.sum(0)", elements=1 << 24),
    Case("reductions", "sum 4096x4096 over axis 1", MATRIX, "a.sum(1)", elements=1 << 24),
    Case("reductions", "softmax 1024x1000", "a = A(1024, 1000)", "", "a.softmax(-1)", SOFTMAX, "torch.softmax(a, -1)"),
    Case("strided", "add transposed 2000x1000", "a, b = A(2000, 1000), A(1000, 2000).T", "a + b"),
    Case("strided", "add row to 2000x1000", "a, b = A(2000, 1000), A(1000)", "a + b"),
    Case("strided", "add column to 2000x1000", "a, b = A(2000, 1000), A(2000, 1)", "a + b"),
    Case("strided", "copy transposed 2000x1000", "a = A(1000, 2000).T", "a.copy()", torch="a.contiguous()"),
    *[Case("matmul", f"{n}^3", SQUARE.format(n), "a @ b") for n in (1024, 512, 64)],
    Case("matmul", "batched 64 x 64^3", "a, b = A(64, 64, 64), A(64, 64, 64)", "a @ b"),
    Case("matmul", "512^3 a.T @ b", SQUARE.format(512), "a.T @ b"),
    Case("matmul", "512^3 a @ b.T", SQUARE.format(512), "a @ b.T"),
    Case("index", "take 8192 of 50000x128", ROWS, "", *TAKE),
    Case("index", "scatter_add 8192 rows", ROWS, "", *SCATTER),
]

FOUR, PARAMETERS = "((a * b + c) * a).sum()", "a, b, c = P(8, 8), P(8, 8), P(8, 8)"
CASES += [
    Case("autograd", "recorded add 8x8", PARAMETERS, "a + b", of=TENSORS),
    Case("autograd", "recorded multiply 8x8 by 2.0", PARAMETERS, "a * 2.0", of=TENSORS),
    Case("autograd", "recorded matmul 8x8", PARAMETERS, "a @ b", of=TENSORS),
    Case("autograd", "((a*b + c)*a).sum() 8x8, forward", PARAMETERS, FOUR, of=TENSORS),
    Case("autograd", "the same, forward + backward", PARAMETERS, f"{FOUR}.backward()", of=TENSORS),
    Case("train step", "MLP 2-16-16-1, batch 32, SGD", "step = model('mlp')", "step()", of=(*TENSORS, "jax")),
    Case("train step", "MLPResNet, batch 100, Adam", "step = model('mlpresnet')", "step()", of=TENSORS),
    Case("train step", "ResNet9, batch 128, Adam", "step = model('resnet9')", "step()", of=TENSORS),
    Case("train step", "LSTM LM, small", "step = model('lstm_small')", "step()", of=TENSORS),
    Case("train step", "LSTM LM, PTB size", "step = model('lstm_ptb')", "step()", of=TENSORS),
    Case("train step", "transformer LM, small", "step = model('transformer_small')", "step()", of=TENSORS),
    Case("train step", "transformer LM, PTB size", "step = model('transformer_ptb')", "step()", of=TENSORS),
    Case("train step", "20-layer MLP, no update", "step = model('deep')", "step()", of=TENSORS),
    Case("train step", "4 transformer blocks, no update", "step = model('transformer')", "step()", of=TENSORS),
]

FAMILIES = [*dict.fromkeys(case.family for case in CASES), "memory", "install"]
