"""Recipes: what `needle train` knows how to train. Each is four plain functions to read and to copy.

`data` opens the data and says what the model has to know about it (`facts`, which go into the checkpoint); `model` builds the
network from the settings and these facts, without the data; `optimizer` and `schedule` choose how it learns.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from needle.autograd import Tensor
from needle_nn import nn, optim
from needle_nn.command.adapting import adam_of_trained, adapting_data, adapting_model
from needle_nn.command.arguments import UsageError
from needle_nn.command.loaders import Chunks, Stretches, Unrolled, read_text
from needle_nn.data import (
    CharCorpus,
    CIFAR10Dataset,
    Corpus,
    DataLoader,
    DigitsDataset,
    MNISTDataset,
    NDArrayDataset,
    RandomCrop,
    RandomFlipHorizontal,
    stdlib_docstrings,
)
from needle_nn.models import GPT, LanguageModel, LeNet, MLPResNet, ResNet9


@dataclass
class Data:
    """Loaders of (input, target), and what a model has to know of them."""

    train: Any
    test: Any
    facts: dict[str, Any] = field(default_factory=dict)
    about: str = ""


@dataclass
class Recipe:
    """A task: its functions, the settings it has, their defaults, and what --data is."""

    data: Callable[[Any], Data]
    model: Callable[[Any, Mapping[str, Any]], nn.Module]
    optimizer: Callable[[Any, nn.Module], Any]
    schedule: Callable[[Any, int], Any]
    defaults: dict[str, Any]
    data_help: str  # what --data names
    needs_data: bool = False  # or there is something to train on without
    models: tuple[str, ...] = ()
    text: bool = False
    clip_norm: float | None = None

    @property
    def help(self) -> str:
        return str(self.data.__doc__).splitlines()[0].rstrip(".")


class Images(nn.Module):
    """Rows of pixels as images: (N, C H W) -> (N, C, H, W)"""

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.shape = (channels, height, width)

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape((x.shape[0], *self.shape))


def adam(o: Any, model: nn.Module) -> Any:
    return optim.Adam(model.parameters(), lr=o.lr, weight_decay=o.weight_decay)


def sgd(o: Any, model: nn.Module) -> Any:
    return optim.SGD(model.parameters(), lr=o.lr, weight_decay=o.weight_decay)


def falling(optimizer: Any, steps: int) -> Any:
    """Down to 0 along half a cosine."""
    return optim.CosineLR(optimizer, steps)


def up_and_falling(optimizer: Any, steps: int) -> Any:
    """The same after a start that rises for a twentieth of the steps, at most 100."""
    up = max(1, min(100, steps // 20))
    return optim.WarmupLR(optimizer, up, after=optim.CosineLR(optimizer, max(1, steps - up)))


def constant(optimizer: Any, steps: int) -> Any:
    return None


def _loaders(o: Any, train: Any, test: Any) -> tuple[DataLoader, DataLoader]:
    shuffled = DataLoader(train, o.batch_size, shuffle=True, seed=o.seed, num_workers=o.workers, device=o.device)
    return shuffled, DataLoader(test, 250, device=o.device)


# ---- Pictures --------------------------------------------------------------------------------------------------


def digits_data(o: Any) -> Data:
    """Handwritten digits of 8 × 8 pixels, which come with the package.

    Every fifth image is for testing, so that every writer is in both parts. (DigitsDataset itself cuts between writers, which is
    harder: the same network gets about 96 % there.)
    """
    if o.data:
        return mnist_data(o)
    parts = DigitsDataset(), DigitsDataset(train=False)
    x, y = np.concatenate([part.X for part in parts]), np.concatenate([part.y for part in parts])
    held = np.arange(len(y)) % 5 == 4
    train, test = _loaders(o, NDArrayDataset(x[~held], y[~held]), NDArrayDataset(x[held], y[held]))
    about = f"{(~held).sum()} digits of 8 × 8 pixels, {held.sum()} for testing"
    return Data(train, test, {"image": [1, 8, 8], "classes": list("0123456789")}, about)


def mnist_data(o: Any) -> Data:
    """Handwritten digits of 28 × 28 pixels (MNIST or a relative of it)."""
    parts = [
        MNISTDataset(_either(o.data, f"{part}-images-idx3-ubyte"), _either(o.data, f"{part}-labels-idx1-ubyte"))
        for part in ("train", "t10k")
    ]
    train, test = _loaders(o, *parts)
    height, width, _ = parts[0].image_shape
    about = f"{len(parts[0])} images of {height} × {width} pixels, {len(parts[1])} for testing"
    classes = [str(i) for i in range(int(parts[0].y.max()) + 1)]
    return Data(train, test, {"image": [1, height, width], "classes": classes}, about)


def _either(folder: str, name: str) -> Path:
    """The file of this name, plain or gzipped."""
    found = [path for path in (Path(folder) / f"{name}.gz", Path(folder) / name) if path.exists()]
    if not found:
        raise FileNotFoundError(f"{folder}: holds no {name}.gz and no {name}")
    return found[0]


def digits_model(o: Any, facts: Mapping[str, Any]) -> nn.Module:
    channels, height, width = facts["image"]
    classes = len(facts["classes"])
    if o.model == "mlp":
        return MLPResNet(channels * height * width, num_classes=classes, device=o.device)
    if o.model == "cnn":
        return small_cnn(channels, height, width, classes, o.device)
    if height != width:
        raise UsageError(f"lenet wants square images, these have {height} × {width} pixels; --model cnn takes them")
    return nn.Sequential(Images(*facts["image"]), LeNet(height, channels, classes, device=o.device))


def small_cnn(channels: int, height: int, width: int, classes: int, device: Any = None) -> nn.Module:
    """Three convolutions of 3 × 3 with batch norm and relu, two max pools, dropout and a linear map."""

    def conv(i: int, o: int) -> tuple[nn.Module, ...]:
        return nn.Conv(i, o, 3, bias=False, device=device), nn.BatchNorm2d(o, device=device), nn.ReLU()

    last = 64 * (height // 4) * (width // 4)
    return nn.Sequential(
        Images(channels, height, width),
        *conv(channels, 32),
        *conv(32, 32),
        nn.MaxPool2d(2),
        *conv(32, 64),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(last, classes, device=device),
    )


CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck".split()


def cifar10_data(o: Any) -> Data:
    """Colour pictures of ten kinds of things (CIFAR-10)."""
    moved = [RandomFlipHorizontal(), RandomCrop(4)]
    parts = CIFAR10Dataset(o.data, train=True, transforms=moved), CIFAR10Dataset(o.data, train=False)
    about = f"{len(parts[0])} pictures of 32 × 32 pixels, {len(parts[1])} for testing"
    return Data(*_loaders(o, *parts), {"image": [3, 32, 32], "classes": CIFAR10}, about)


def cifar10_model(o: Any, facts: Mapping[str, Any]) -> nn.Module:
    return ResNet9(device=o.device)


# ---- Text ------------------------------------------------------------------------------------------------------


def ptb_data(o: Any) -> Data:
    """The next word of a text (Penn Treebank, or any folder with train.txt and test.txt)."""
    corpus = Corpus(o.data)
    train = Chunks(corpus.train, o.batch_size, o.context, o.device, steps_of=o.accumulate)
    test = Chunks(corpus.test, o.batch_size, o.context, o.device)
    words = corpus.dictionary.idx2word
    return Data(
        train,
        test,
        {"words": words},
        f"{len(corpus.train)} words, {len(corpus.test)} for testing, {len(words)} different",
    )


def ptb_model(o: Any, facts: Mapping[str, Any]) -> nn.Module:
    sizes = {"hidden_size": o.width, "num_layers": o.layers, "seq_model": o.model, "seq_len": o.context}
    return Unrolled(LanguageModel(o.width, len(facts["words"]), **sizes, device=o.device))


def text_data(o: Any) -> Data:
    """The next character of any text file, or of the docstrings of Python's standard library."""
    text = read_text(o.data) if o.data else stdlib_docstrings()
    corpus = CharCorpus(text)
    batches = max(1, min(len(corpus.train) // (o.context * o.batch_size), 250))
    train = Stretches(corpus, o.context, o.batch_size, batches, o.seed, device=o.device)
    test = Stretches(corpus, o.context, 64, 10, o.seed, split="validation", device=o.device)
    about = f"{len(text)} characters, {len(corpus)} different, the last tenth for validation"
    return Data(train, test, {"characters": corpus.vocabulary, "begin": text[:20]}, about)


def text_model(o: Any, facts: Mapping[str, Any]) -> nn.Module:
    size = {"context": o.context, "embedding_size": o.width, "num_layers": o.layers, "num_head": max(1, o.width // 32)}
    return GPT(len(facts["characters"]), **size, dropout=o.dropout, device=o.device)


# ---- The table -------------------------------------------------------------------------------------------------

_COMMON = {"weight_decay": 0.0, "workers": 0, "accumulate": 1, "steps": None, "patience": None}
_SIZES = {"context": 64, "width": 128, "layers": 4}
_LORA = {"base": None, "maps": None, "rank": 8, "alpha": 16.0}

RECIPES = {
    "digits": Recipe(
        digits_data,
        digits_model,
        adam,
        falling,
        {**_COMMON, "epochs": 15, "batch_size": 64, "lr": 2e-3, "model": "cnn"},
        data_help="a folder of IDX files as for mnist, instead of the digits that come along",
        models=("cnn", "lenet", "mlp"),
    ),
    "mnist": Recipe(
        mnist_data,
        digits_model,
        adam,
        falling,
        {**_COMMON, "epochs": 10, "batch_size": 100, "lr": 1e-3, "model": "lenet"},
        data_help="the folder of the four IDX files, gzipped or plain",
        needs_data=True,
        models=("lenet", "cnn", "mlp"),
    ),
    "cifar10": Recipe(
        cifar10_data,
        cifar10_model,
        adam,
        falling,
        {**_COMMON, "epochs": 10, "batch_size": 128, "lr": 1e-3, "weight_decay": 1e-3, "model": "resnet9"},
        data_help="the folder of data_batch_1 to data_batch_5 and test_batch",
        needs_data=True,
        models=("resnet9",),
    ),
    "ptb": Recipe(
        ptb_data,
        ptb_model,
        sgd,
        constant,
        {**_COMMON, **_SIZES, "epochs": 10, "batch_size": 16, "lr": 4.0, "model": "lstm", "context": 40, "width": 100, "layers": 2},
        data_help="the folder of train.txt and test.txt",
        needs_data=True,
        models=("rnn", "lstm", "gru", "transformer"),
        text=True,
        clip_norm=0.25,
    ),
    "text": Recipe(
        text_data,
        text_model,
        adam,
        up_and_falling,
        {**_COMMON, **_SIZES, "epochs": 8, "batch_size": 32, "lr": 3e-3, "dropout": 0.0, "model": "gpt"},
        data_help="a text file, instead of the docstrings of Python's standard library",
        models=("gpt",),
        text=True,
        clip_norm=1.0,
    ),
    "lora": Recipe(
        adapting_data,
        adapting_model,
        adam_of_trained,
        up_and_falling,
        {**_COMMON, "epochs": 3, "batch_size": 8, "lr": 1e-3, "dropout": 0.0, "model": "lora", "context": 128, **_LORA},
        data_help="the text file to learn",
        needs_data=True,
        models=("lora",),
        text=True,
        clip_norm=1.0,
    ),
}  # fmt: skip
