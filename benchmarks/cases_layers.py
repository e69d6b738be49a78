"""Cases of layers and optimizers: convolution over the shapes of ResNet-style nets, norms, losses, embedding, updates."""

from typing import Any

from benchmarks.cases import GRAPHS, Case

#: (images, height and width, channels in, channels out, kernel, stride)
CONVOLUTIONS = [
    (128, 32, 3, 16, 7, 4),
    (128, 8, 16, 32, 3, 2),
    (128, 4, 32, 32, 3, 1),
    (128, 2, 64, 128, 3, 2),
    (128, 1, 128, 128, 3, 1),
    (32, 32, 16, 16, 3, 1),
    (32, 16, 32, 32, 3, 1),
    (32, 8, 64, 64, 3, 1),
    (16, 56, 64, 64, 3, 1),
    (16, 28, 128, 128, 1, 1),
    (100, 28, 1, 6, 5, 1),
]


def convolution(n: int, size: int, c: int, out: int, k: int, stride: int) -> Case:
    pad = (k - 1) // 2
    return Case(
        "convolution",
        f"{n} of {size}x{size}x{c}, {k}x{k} to {out}" + (f", stride {stride}" if stride > 1 else "") + ", f+b",
        f"x, w = IMAGE({n}, {size}, {size}, {c}), KERNEL({k}, {k}, {c}, {out})",
        needle=f"ops.conv2d(x, w, None, {stride}, {pad})",
        torch=f"F.conv2d(x, w, None, {stride}, {pad})",
        jax=f"lax.conv_general_dilated(x, w, ({stride}, {stride}), [({pad}, {pad})] * 2,"
        " dimension_numbers=('NHWC', 'HWIO', 'NHWC'))",
        of=("needle", "torch", "jax"),
        backward=True,
    )


SOFTMAX = "np.divide(e := np.exp(a - a.max(1, keepdims=True)), e.sum(1, keepdims=True))"
LOGITS = "x, y = P(700, 10000), L(700, 10000)"
FEW_LOGITS = "x, y = P(100, 10), L(100, 10)"
ENTROPY = {
    "needle": "ops.cross_entropy(x, y)",
    "torch": "F.cross_entropy(x, y)",
    "jax": "-jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()",
}
NORM = "x, w, b = P({0}), P({1}), P({1})"
LAYER_NORM = {
    "needle": "ops.layer_norm(x, w, b)",
    "torch": "F.layer_norm(x, w.shape, w, b)",
    "jax": "(x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * w + b",
}
BATCH_NORM = {
    "needle": "ops.batch_norm(x, w, b, axis={axis})",
    "torch": "F.batch_norm(x, None, None, w, b, True, 0.1, 1e-5)",
    "jax": "(x - x.mean({axes})) * lax.rsqrt(x.var({axes}) + 1e-5) * w + b",
}
BATCH = {name: text.format(axis=1, axes="0") for name, text in BATCH_NORM.items()}
CHANNELS = {name: text.format(axis=-1, axes="(0, 1, 2)") for name, text in BATCH_NORM.items()}
EMBEDDING = {"needle": "ops.embedding(i, w)", "torch": "F.embedding(i, w)", "jax": "jnp.take(w, i, axis=0)"}
DROPOUT = {"needle": "ops.dropout(x, 0.1)", "torch": "F.dropout(x, 0.1)"}
RELU = {"needle": "ops.relu(x)", "torch": "torch.relu(x)", "jax": "jax.nn.relu(x)"}
GELU = {"needle": "ops.gelu(x)", "torch": "F.gelu(x)", "jax": "jax.nn.gelu(x, approximate=False)"}
HEADS = "q, k, v = P(16, 8, 128, 32), P(16, 8, 128, 32), P(16, 8, 128, 32)"
ATTENTION = {
    "needle": "ops.scaled_dot_product_attention(q, k, v, causal=True)",
    "torch": "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    "jax": "jnp.swapaxes(jax.nn.dot_product_attention(*(jnp.swapaxes(z, 1, 2) for z in (q, k, v)), is_causal=True), 1, 2)",
}


def layer(name: str, setup: str, snippets: dict[str, Any], of: tuple[str, ...] = GRAPHS, **more: Any) -> Case:
    return Case("layers", f"{name}, f+b", setup, of=of, backward=True, **snippets, **more)


LAYERS = [
    Case("layers", "softmax 1024x1000, forward", "a = A(1024, 1000)", needle="a.softmax(-1)", numpy=SOFTMAX,
         torch="torch.softmax(a, -1)", jax="jax.nn.softmax(a)"),
    Case("layers", "softmax 4096x10, forward", "a = A(4096, 10)", needle="a.softmax(-1)", numpy=SOFTMAX,
         torch="torch.softmax(a, -1)", jax="jax.nn.softmax(a)"),
    Case("layers", "softmax 256x1000, half of it masked, forward", "a = A(256, 1000); a = a - (a < 0.5) * (0 * a + 1e5)",
         needle="a.softmax(-1)", numpy=SOFTMAX, torch="torch.softmax(a, -1)", jax="jax.nn.softmax(a)"),
    layer("softmax 1024x1000", "x = P(1024, 1000)", {"needle": "ops.softmax(x)", "torch": "torch.softmax(x, -1)",
          "jax": "jax.nn.softmax(x)"}),
    layer("cross-entropy 700x10000", LOGITS, ENTROPY),
    layer("cross-entropy 100x10", FEW_LOGITS, ENTROPY),
    layer("layer norm 4096x256", NORM.format("4096, 256", "256"), LAYER_NORM),
    layer("layer norm 320x64", NORM.format("320, 64", "64"), LAYER_NORM),
    layer("batch norm 100x100", NORM.format("100, 100", "100"), BATCH),
    layer("batch norm 32 of 16x16x64", "x, w, b = IMAGE(32, 16, 16, 64), P(64), P(64)", CHANNELS),
    layer("embedding 700 of 10000x200", "i, w = L(700, 10000), P(10000, 200)", EMBEDDING),
    layer("dropout 0.1 of 4096x256", "x = P(4096, 256)", DROPOUT, ("needle", "torch"), after="-"),
    layer("relu 4096x256", "x = P(4096, 256)", RELU),
    layer("gelu 4096x256", "x = P(4096, 256)", GELU),
    layer("max pool 2x2, 100 of 28x28x6", "x = IMAGE(100, 28, 28, 6)", {"needle": "ops.max_pool2d(x, 2)",
          "torch": "F.max_pool2d(x, 2)"}, ("needle", "torch")),
    layer("causal attention 16x8 heads of 128x32", HEADS, ATTENTION),
]  # fmt: skip

MANY, FEW = "[(32, 32)] * 300", "[(2048, 2048)] * 4"
OPTIMIZERS = [
    Case("optimizers", f"{label}, {what}", f"step, params = optimizer('{kind}', {shapes})", "step()",
         of=("needle", "torch", "jax"), after="params()")
    for label, kind in (("SGD", "sgd"), ("SGD with momentum", "momentum"), ("Adam", "adam"), ("AdamW", "adamw"))
    for what, shapes in (("300 of 32x32", MANY), ("4 of 2048x2048", FEW))
]  # fmt: skip

CASES = [*(convolution(*row) for row in CONVOLUTIONS), *LAYERS, *OPTIMIZERS]
