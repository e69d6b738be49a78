"""Sizes, data and weights of the models, the same numbers in every framework."""

import numpy as np

#: name: (words, embedding, hidden, layers, steps)
LANGUAGE = {
    "tiny": (50, 16, 24, 2, 5),
    "small": (1000, 64, 128, 1, 20),
    "ptb": (10000, 200, 200, 2, 35),
    "wide": (1000, 256, 1024, 4, 256),
}
#: The first is what targets and peers that compile are measured at.
BATCHES = {
    "mlp": (32, 256),
    "mlpresnet": (100, 32, 512),
    "lenet": (100, 32),
    "resnet9": (128, 32),
    "lstm small": (16, 64),
    "lstm ptb": (20,),
    "gru small": (16, 64),
    "gru ptb": (20,),
    "transformer small": (16, 64),
    "transformer ptb": (20,),
    "transformer wide": (8,),
    "deep": (2048,),
}
TITLES = {"mlp": "tiny MLP 2-16-16-1", "mlpresnet": "MLPResNet", "lenet": "LeNet", "resnet9": "ResNet9"}
TITLES |= {
    f"{kind} {size}": f"{title} LM, {words}"
    for kind, title in (("lstm", "LSTM"), ("gru", "GRU"), ("transformer", "transformer"))
    for size, words in (("small", "small"), ("ptb", "PTB size"), ("tiny", "tiny"))
}
TITLES |= {"transformer wide": "transformer LM, 4 layers of 256", "deep": "20-layer MLP of 512"}

LR = {"mlp": 0.01, "deep": 0.01}  # SGD; the others learn by Adam, at 0.001
DROP = 0.1  # MLPResNet's
GPT2_BEFORE, GPT2_PROMPT = (64, 320), 512  # tokens before the one that is computed, tokens of a prompt
GPT2_SIZE = 124_439_808  # parameters
DATASET = (10000, 784)  # rows of data loading


def sizes(model: str) -> tuple[str, tuple[int, ...]]:
    """("lstm", the sizes) of "lstm small"."""
    kind, _, size = model.partition(" ")
    return kind, LANGUAGE[size]


def batch_of(model: str, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of a step: images (N, C, H, W), words (T, B)."""
    rng = np.random.default_rng(1)
    shapes = {"mlp": (2,), "deep": (512,), "mlpresnet": (784,), "lenet": (1, 28, 28), "resnet9": (3, 32, 32)}
    if model in shapes:
        x = rng.normal(size=(batch, *shapes[model])).astype(np.float32)
        if model in LR:
            return x, rng.normal(size=(batch, 1 if model == "mlp" else 512)).astype(np.float32)
        return x, rng.integers(0, 10, batch)
    words, *_, steps = sizes(model)[1]
    ids = rng.integers(0, words, (steps + 1, batch))
    return ids[:-1], ids[1:].reshape(-1)


def kind_of(name: str, ndim: int) -> str:
    """What a parameter of this name is: a bias, the scale of a norm, an embedding or the matrix of a map."""
    if "bias" in name.rpartition(".")[2]:
        return "bias"
    if "embedding" in name:
        return "table"
    return "scale" if ndim == 1 else "matrix"


def draw(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Weights in Needle's layout, outputs last. Every framework draws those of a model in the same order."""
    normal = rng.normal(size=shape)
    if kind == "matrix":
        normal /= np.prod(shape[:-1]) ** 0.5
    elif kind in ("bias", "scale", "table"):
        normal = normal * 0.1 + (kind == "scale")
    return normal.astype(np.float32)


def gpt2_ids(count: int) -> np.ndarray:
    """A prompt (1, count) of GPT-2."""
    return np.random.default_rng(1).integers(0, 50257, (1, count))


def gpt2_weights(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Weights under the names of its file, each from a generator of its own; numbers stay near 1 in every layer."""
    found = {}
    for name, shape in shapes.items():
        if name == "lm_head.weight":  # the table of tokens
            continue
        values = np.random.default_rng(list(name.encode())).random(shape, dtype=np.float32) - np.float32(0.5)
        fan_in = shape[0] if ".c_" in name else shape[-1]
        found[name] = values * np.float32(3.4 * fan_in**-0.5) if len(shape) > 1 else values * np.float32(0.2)
        if ".ln_" in name and name.endswith("weight"):
            found[name] += 1
    return found
