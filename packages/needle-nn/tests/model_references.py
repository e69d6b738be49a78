"""Published networks in NumPy, float64, from weights in the names and layouts of their files."""

import math

import numpy as np


def linear(w, name, x):
    """(..., in) by a weight (out, in)."""
    y = x @ w[f"{name}.weight"].T
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def layer_norm(w, name, x, eps):
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    return y * w[f"{name}.weight"] + w[f"{name}.bias"]


def rms_norm(w, name, x, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w[f"{name}.weight"]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def heads(x, count):
    return x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def attention(q, k, v, causal):
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    y = (softmax(scores) @ v).swapaxes(1, 2)
    return y.reshape(*y.shape[:2], -1)


def erf(x):
    return np.vectorize(math.erf)(x)


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gpt2(w, ids, num_head):
    """Its Conv1D weights are (in, out)."""

    def conv1d(name, x):
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][: ids.shape[1]]
    layers = len([name for name in w if name.endswith("ln_1.weight")])
    for h in [f"transformer.h.{i}" for i in range(layers)]:
        parts = np.split(conv1d(f"{h}.attn.c_attn", layer_norm(w, f"{h}.ln_1", x, 1e-5)), 3, axis=-1)
        x = x + conv1d(f"{h}.attn.c_proj", attention(*[heads(p, num_head) for p in parts], True))
        inner = gelu_tanh(conv1d(f"{h}.mlp.c_fc", layer_norm(w, f"{h}.ln_2", x, 1e-5)))
        x = x + conv1d(f"{h}.mlp.c_proj", inner)
    return layer_norm(w, "transformer.ln_f", x, 1e-5) @ w["lm_head.weight"].T


def llama(w, ids, num_head, num_groups, theta=10000.0, eps=1e-6):
    def rotated(x):
        half = x.shape[-1] // 2
        angle = np.arange(x.shape[-2])[:, None] / theta ** (np.arange(half) / half)
        turned = np.concatenate([-x[..., half:], x[..., :half]], -1)
        return x * np.tile(np.cos(angle), 2) + turned * np.tile(np.sin(angle), 2)

    x = w["model.embed_tokens.weight"][ids]
    layers = len([name for name in w if name.endswith("input_layernorm.weight")])
    for h in [f"model.layers.{i}" for i in range(layers)]:
        y = rms_norm(w, f"{h}.input_layernorm", x, eps)
        q = rotated(heads(linear(w, f"{h}.self_attn.q_proj", y), num_head))
        k = rotated(heads(linear(w, f"{h}.self_attn.k_proj", y), num_groups))
        v = heads(linear(w, f"{h}.self_attn.v_proj", y), num_groups)
        k, v = (np.repeat(part, num_head // num_groups, axis=1) for part in (k, v))
        x = x + linear(w, f"{h}.self_attn.o_proj", attention(q, k, v, True))
        y = rms_norm(w, f"{h}.post_attention_layernorm", x, eps)
        gate = linear(w, f"{h}.mlp.gate_proj", y)
        x = x + linear(w, f"{h}.mlp.down_proj", gate / (1 + np.exp(-gate)) * linear(w, f"{h}.mlp.up_proj", y))
    return linear(w, "lm_head", rms_norm(w, "model.norm", x, eps))


def conv2d(w, name, x, stride=1, padding=0):
    """NCHW by a weight (out, in, k, k)."""
    weight = w[f"{name}.weight"]
    k = weight.shape[-1]
    x = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    windows = np.lib.stride_tricks.sliding_window_view(x, (k, k), (2, 3))[:, :, ::stride, ::stride]
    y = np.einsum("nchwij,ocij->nohw", windows, weight)
    return y + w[f"{name}.bias"][:, None, None] if f"{name}.bias" in w else y


def batch_norm(w, name, x):
    mean, var, weight, bias = (w[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
    return (x - mean[:, None, None]) * (weight / np.sqrt(var + 1e-5))[:, None, None] + bias[:, None, None]


def relu(x):
    return np.maximum(x, 0)


def resnet(w, x, convolutions):
    """`convolutions` in a block: 2 of 3 x 3, or 3, of which the middle one is 3 x 3 and has the stride."""
    x = relu(batch_norm(w, "bn1", conv2d(w, "conv1", x, 2, 3)))
    x = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
    x = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2].max((-1, -2))
    for layer in range(1, 5):
        i = 0
        while f"layer{layer}.{i}.conv1.weight" in w:
            block, stride = f"layer{layer}.{i}", 2 if layer > 1 and i == 0 else 1
            y = x
            for j in range(1, convolutions + 1):
                wide = w[f"{block}.conv{j}.weight"].shape[-1] == 3
                steps = stride if j == (1 if convolutions == 2 else 2) else 1
                y = batch_norm(w, f"{block}.bn{j}", conv2d(w, f"{block}.conv{j}", y, steps, int(wide)))
                y = relu(y) if j < convolutions else y
            if f"{block}.downsample.0.weight" in w:
                x = batch_norm(w, f"{block}.downsample.1", conv2d(w, f"{block}.downsample.0", x, stride))
            x, i = relu(x + y), i + 1
    return linear(w, "fc", x.mean((2, 3)))


def vit(w, x, num_head, patch_size):
    x = conv2d(w, "conv_proj", x, patch_size)
    x = x.reshape(*x.shape[:2], -1).swapaxes(1, 2)
    first = np.broadcast_to(w["class_token"], (len(x), 1, x.shape[2]))
    x = np.concatenate([first, x], 1) + w["encoder.pos_embedding"]
    layers = len([name for name in w if name.endswith("ln_1.weight")])
    for h in [f"encoder.layers.encoder_layer_{i}" for i in range(layers)]:
        y = layer_norm(w, f"{h}.ln_1", x, 1e-6)
        both = y @ w[f"{h}.self_attention.in_proj_weight"].T + w[f"{h}.self_attention.in_proj_bias"]
        parts = [heads(part, num_head) for part in np.split(both, 3, axis=-1)]
        x = x + linear(w, f"{h}.self_attention.out_proj", attention(*parts, False))
        x = x + linear(w, f"{h}.mlp.3", gelu(linear(w, f"{h}.mlp.0", layer_norm(w, f"{h}.ln_2", x, 1e-6))))
    return linear(w, "heads.head", layer_norm(w, "encoder.ln", x, 1e-6)[:, 0])


def draw(shapes, seed=0):
    """Weights of these shapes, float64: far from where networks begin, and variances above 0."""
    rng, found = np.random.default_rng(seed), {}
    for name, shape in shapes.items():
        if name.endswith("num_batches_tracked"):
            continue
        fan_in = math.prod(shape[1:]) if len(shape) > 1 else 1
        values = rng.normal(size=shape) * (0.7 if len(shape) < 2 or "wte" in name or "embed" in name else fan_in**-0.5)
        found[name] = 0.5 + abs(values) if name.endswith("var") else values + ("norm" in name or ".ln" in name)
    return found
