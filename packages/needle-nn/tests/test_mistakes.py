"""Mistakes that are often made, above all with PyTorch in mind, and the one line that each of them gets."""

import io
import pickle
import zipfile

import numpy as np
import pytest

import needle as ndl
from needle import data, nn, optim
from needle_nn.checkpoint import CheckpointError, load
from needle_nn.training import ProgressBar, Trainer

LAYER = nn.Linear(3, 2)
X = ndl.ones(2, 3)
Y = ndl.Tensor(np.array([0, 1]), requires_grad=False)
PARAMS = LAYER.parameters()


def sgd():
    return optim.SGD(LAYER.parameters())


def fit(batch):
    return Trainer(LAYER, sgd(), nn.SoftmaxLoss()).fit([batch], 1)


class Bare:
    """Has neither length nor items."""


MISTAKES = [
    (lambda: nn.Linear("3", 2), "TypeError: Linear: in_features = '3': expected an int from 1 on"),
    (lambda: nn.Linear(3.0, 2), "TypeError: Linear: in_features = 3.0: expected an int from 1 on"),
    (lambda: nn.Linear(3, 0), "ValueError: Linear: out_features = 0: expected an int from 1 on"),
    (lambda: nn.Linear(3, 2, ndl.cpu()), "TypeError: Linear: bias = cpu(): expected True or False"),
    (lambda: nn.Linear(3, 2, "cpu"), "TypeError: Linear: bias = 'cpu': expected True or False"),
    (lambda: nn.Embedding(10, -1), "ValueError: Embedding: embedding_dim = -1: expected an int from 1 on"),
    (lambda: nn.Conv2d(3.5, 4, 3), "TypeError: Conv2d: in_channels = 3.5: expected an int from 1 on"),
    (lambda: nn.Conv2d(3, 4, 3.0), "TypeError: Conv2d: kernel_size 3.0: expected an int or a pair of ints"),
    (lambda: nn.Conv2d(3, 4, (3, 3, 3)), "TypeError: Conv2d: kernel_size (3, 3, 3): expected an int or a pair of ints"),
    (lambda: nn.Conv(3, 4, 3, 1, ndl.cpu()), "TypeError: Conv: bias = cpu(): expected True or False"),
    (lambda: nn.Dropout("x"), "ValueError: Dropout: p = 'x': expected a number from 0, below 1"),
    (lambda: nn.Tanh(inplace=True), "TypeError: Tanh: takes no arguments, got inplace=True"),
    (lambda: nn.ReLU(inplace=ndl.cpu()), "TypeError: ReLU: inplace = cpu(): expected True or False"),
    (lambda: nn.Sigmoid(1), "TypeError: Sigmoid: takes no arguments, got 1"),
    (lambda: nn.LSTM(3, 4, 0), "ValueError: LSTM: num_layers = 0: expected an int from 1 on"),
    (lambda: nn.GRU(3, 4, bias=ndl.cpu()), "TypeError: GRUCell: bias = cpu(): expected True or False"),
    (
        lambda: nn.LSTM(3, 4)(ndl.ones(5, 2, 3), ndl.ones(2, 2, 4)),
        "TypeError: LSTM: the state is a Tensor, expected (h, c)",
    ),
    (
        lambda: nn.LSTMCell(3, 4)(ndl.ones(2, 3), ndl.ones(2, 4)),
        "TypeError: LSTMCell: the state is a Tensor, expected (h, c)",
    ),
    (
        lambda: nn.GRU(3, 4)(ndl.ones(5, 2, 3), ndl.ones(1, 3, 4)),
        "ValueError: GRU: state has shape (1, 3, 4), expected (1, 2, 4)",
    ),
    (lambda: nn.ModuleList(nn.ReLU()), "TypeError: ModuleList: expected a list of modules, got ReLU"),
    (
        lambda: nn.ModuleList([nn.ReLU]),
        "TypeError: ModuleList: layer 0 is the class ReLU, expected a layer: ReLU(...)",
    ),
    (
        lambda: nn.ModuleList([nn.ReLU()])(X),
        "NotImplementedError: ModuleList: calls none of its modules; write a loop over them, or use Sequential",
    ),
    (lambda: nn.Residual(nn.ReLU), "TypeError: Residual: layer fn is the class ReLU, expected a layer: ReLU(...)"),
    (lambda: LAYER.load_state_dict("m.pt"), "TypeError: Linear.load_state_dict: expected a dict, got str"),
    (
        lambda: optim.SGD(LAYER),
        "TypeError: SGD: expected an iterable of parameters, got Linear: give model.parameters()",
    ),
    (
        lambda: optim.SGD(LAYER.parameters),
        "TypeError: SGD: expected an iterable of parameters, got method: call it",
    ),
    (lambda: optim.SGD(0.1, PARAMS), "TypeError: SGD: expected an iterable of parameters, got float"),
    (lambda: optim.SGD(PARAMS, lr="0.1"), "ValueError: SGD: lr = '0.1': expected a number from 0 on"),
    (lambda: optim.SGD([{"lr": 1}]), "TypeError: SGD: expected a dict with params, got one with lr"),
    (
        lambda: optim.EMA(LAYER),
        "TypeError: EMA: expected an iterable of parameters, got Linear: give model.parameters()",
    ),
    (
        lambda: optim.clip_grad_norm(1.0, PARAMS),
        "ValueError: clip_grad_norm: max_norm = a Listed: expected a number from 0 on",
    ),
    (
        lambda: optim.WarmupLR(o := sgd(), 2, after=optim.ReduceOnPlateau(o)),
        "TypeError: WarmupLR: after: ReduceOnPlateau follows a metric, expected a Schedule of the steps",
    ),
    (
        lambda: data.DataLoader([1], sampler=data.RandomSampler),
        "TypeError: DataLoader: sampler is the class RandomSampler, expected an iterable of indices with a length",
    ),
    (
        lambda: data.DataLoader([1], batch_sampler=iter([[0]])),
        "TypeError: DataLoader: batch_sampler is a list_iterator, expected an iterable of indices with a length",
    ),
    (
        lambda: data.DataLoader([1], collate_fn=3),
        "TypeError: DataLoader: collate_fn is a int, expected a function of a list of items",
    ),
    (
        lambda: data.DataLoader(Bare()),
        "TypeError: DataLoader: expected a dataset with __getitem__ and __len__, got Bare; list(...) makes one of an iterable",
    ),
    (
        lambda: data.NDArrayDataset((np.ones(3), np.ones(3))),
        "TypeError: NDArrayDataset: got a tuple, expected arrays one by one: NDArrayDataset(*arrays)",
    ),
    (
        lambda: data.NDArrayDataset([[1, 2], [3]]),
        "ValueError: NDArrayDataset: array 0 is a list of rows of different lengths",
    ),
    (
        lambda: data.DigitsDataset(transforms=data.RandomCrop(1)),
        "TypeError: DigitsDataset: transforms are a RandomCrop, expected a list: [transform, ...]",
    ),
    (
        lambda: data.Compose([data.RandomCrop]),
        "TypeError: Compose: transform 0 is the class RandomCrop, expected a function of one image",
    ),
    (lambda: data.DigitsDataset("test"), "TypeError: DigitsDataset: train = 'test': expected True or False"),
    (
        lambda: data.CIFAR10Dataset("folder", "test"),
        "TypeError: CIFAR10Dataset: train = 'test': expected True or False",
    ),
    (lambda: data.RandomCrop((3, 3)), "ValueError: RandomCrop: padding must not be negative, got (3, 3)"),
    (lambda: data.BatchSampler(3, 2), "TypeError: BatchSampler: expected an iterable of indices, got a int"),
    (
        lambda: data.BatchSampler([1], 2.5),
        "ValueError: BatchSampler: batch_size must be an int of at least 1, got 2.5",
    ),
    (
        lambda: data.WeightedSampler([1, 2], num_samples=-1),
        "ValueError: WeightedSampler: num_samples must be an int of at least 0, got -1",
    ),
    (
        lambda: Trainer(LAYER, nn.SoftmaxLoss(), sgd()),
        "TypeError: Trainer: the optimizer is a SoftmaxLoss; expected Trainer(model, optimizer, loss)",
    ),
    (
        lambda: Trainer(LAYER, sgd(), nn.SoftmaxLoss),
        "TypeError: Trainer: the loss is the class SoftmaxLoss; expected Trainer(model, optimizer, loss)",
    ),
    (
        lambda: Trainer(LAYER, sgd(), nn.SoftmaxLoss(), accumulate=1.5),
        "ValueError: Trainer: accumulate must be at least 1, an int, got 1.5",
    ),
    (
        lambda: Trainer(LAYER, sgd(), nn.SoftmaxLoss(), callbacks=ProgressBar()),
        "TypeError: Trainer: expected a list of callbacks, and {name: function} as metrics",
    ),
    (
        lambda: fit((X, Y, Y)),
        "TypeError: Trainer: a batch is (Tensor, Tensor, Tensor), expected (input, target) with a target of tensors",
    ),
    (
        lambda: fit({"x": X, "y": Y}),
        "TypeError: Trainer: a batch is a dict of x, y, expected (input, target) with a target of tensors",
    ),
]


@pytest.mark.parametrize(("make", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_one_line_says_what_was_expected(make, message):
    with pytest.raises(Exception) as caught:
        make()
    assert f"{type(caught.value).__name__}: {caught.value}" == message


# ---- Files of others -----------------------------------------------------------------------------------------------


def archive(*names):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name in names:
            file.writestr(name, b"x" * 50)
    return content.getvalue()


def npy():
    content = io.BytesIO()
    np.save(content, np.ones(3))
    return content.getvalue()


TORCH = r"but a pickle, as PyTorch writes; .*save_file\(torch\.load\('{0}', weights_only=True\), '{1}\.safetensors'\)$"
FILES = {
    "zip of PyTorch": ("model.pt", archive("archive/data.pkl", "archive/data/0"), TORCH.format("model.pt", "model")),
    "pickle of PyTorch": ("model.bin", pickle.dumps({"a": 1}, 2), TORCH.format("model.bin", "model")),
    "anything called .pth": ("m.pth", b"\0" * 40, TORCH.format("m.pth", "m")),
    "npz": ("m.npz", archive("a.npy"), "but one of NumPy; np.load reads it, and load_state_dict takes its arrays"),
    "npy": ("m.npy", npy(), "but one of NumPy; np.load reads it, and load_state_dict takes its arrays"),
    "a damaged safetensors file": ("m.safetensors", (0x0280).to_bytes(8, "little") + b"{", "truncated, damaged or no"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_other_libraries_are_named(name, tmp_path):
    file, content, message = FILES[name]
    path = tmp_path / file
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
