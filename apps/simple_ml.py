"""The course's training loops: a two-layer network by hand, CIFAR-10, and language models on the Penn Treebank."""

import math
from typing import Any

import numpy as np

import needle as ndl
import needle.nn as nn
from needle.data import parse_mnist

__all__ = [
    "parse_mnist", "softmax_loss", "nn_epoch", "loss_err",
    "epoch_general_cifar10", "train_cifar10", "evaluate_cifar10",
    "epoch_general_ptb", "train_ptb", "evaluate_ptb",
]  # fmt: skip


# ---- A two-layer network by hand --------------------------------------------------------------------------


def softmax_loss(Z: ndl.Tensor, y_one_hot: ndl.Tensor) -> ndl.Tensor:
    """mean of log sum e^Z - Z[label]: logits (n, k), labels (n, k) with one 1 in each row."""
    return (ndl.logsumexp(Z, axes=(1,)) - (Z * y_one_hot).sum(axes=(1,))).sum() / Z.shape[0]


def nn_epoch(
    X: np.ndarray, y: np.ndarray, W1: ndl.Tensor, W2: ndl.Tensor, lr: float = 0.1, batch: int = 100
) -> tuple[ndl.Tensor, ndl.Tensor]:
    """One epoch of gradient descent, in order, for logits = relu(X W1) W2; the new W1 and W2."""
    classes = np.eye(W2.shape[1], dtype="float32")
    for start in range(0, X.shape[0], batch):
        x, labels = ndl.Tensor(X[start : start + batch]), ndl.Tensor(classes[y[start : start + batch]])
        softmax_loss(ndl.relu(x @ W1) @ W2, labels).backward()
        W1, W2 = (ndl.Tensor(W.data - lr * W.grad.data) for W in (W1, W2))  # type: ignore[union-attr]
    return W1, W2


def loss_err(h: ndl.Tensor, y: np.ndarray) -> Any:
    """Softmax loss, and the share of wrong answers, of logits h and labels y."""
    y_one_hot = ndl.Tensor(np.eye(h.shape[-1], dtype="float32")[y])
    return softmax_loss(h, y_one_hot).numpy(), np.mean(h.numpy().argmax(axis=1) != y)


# ---- What the loops below share --------------------------------------------------------------------------


class _Average:
    """Accuracy and loss over all examples so far."""

    def __init__(self) -> None:
        self.right, self.loss, self.count = 0, 0.0, 0

    def add(self, logits: ndl.Tensor, labels: ndl.Tensor, loss: ndl.Tensor) -> None:
        n = logits.shape[0]
        self.right += int((logits.numpy().argmax(axis=1) == labels.numpy()).sum())
        self.loss += loss.item() * n
        self.count += n

    def result(self) -> tuple[float, float]:
        return self.right / self.count, self.loss / self.count


def _instance(loss_fn: Any) -> Any:
    """A loss, from one or from its class."""
    return loss_fn() if isinstance(loss_fn, type) else loss_fn


def _step(opt: Any, loss: ndl.Tensor, clip: float | None = None) -> None:
    opt.reset_grad()
    loss.backward()
    if clip is not None:
        opt.clip_grad_norm(clip)
    opt.step()


def _detached(h: Any) -> Any:
    return tuple([part.detach() for part in h]) if isinstance(h, tuple) else h.detach()


# ---- CIFAR-10 --------------------------------------------------------------------------


def epoch_general_cifar10(
    dataloader: Any, model: nn.Module, loss_fn: Any = nn.SoftmaxLoss, opt: Any = None
) -> tuple[float, float]:
    """One pass over the data: (average accuracy, average loss). With `opt` the model is trained, without it evaluated."""
    np.random.seed(4)  # noqa: NPY002
    model.train(opt is not None)
    loss_fn, average, device = _instance(loss_fn), _Average(), model.parameters()[0].device
    with ndl.set_grad_enabled(opt is not None):
        for x, y in dataloader:
            x, y = ndl.Tensor(x, device=device), ndl.Tensor(y, device=device)
            logits = model(x)
            loss = loss_fn(logits, y)
            if opt is not None:
                _step(opt, loss)
            average.add(logits, y, loss)
    return average.result()


def train_cifar10(
    model: nn.Module,
    dataloader: Any,
    n_epochs: int = 1,
    optimizer: Any = ndl.optim.Adam,
    lr: float = 0.001,
    weight_decay: float = 0.001,
    loss_fn: Any = nn.SoftmaxLoss,
) -> tuple[float, float]:
    """Train, with Adam by default: (average accuracy, average loss) of the last epoch."""
    np.random.seed(4)  # noqa: NPY002
    opt = optimizer(model.parameters(), lr=lr, weight_decay=weight_decay)
    result = (math.nan, math.nan)
    for _ in range(n_epochs):
        result = epoch_general_cifar10(dataloader, model, loss_fn, opt)
    return result


def evaluate_cifar10(model: nn.Module, dataloader: Any, loss_fn: Any = nn.SoftmaxLoss) -> tuple[float, float]:
    """(average accuracy, average loss)"""
    np.random.seed(4)  # noqa: NPY002
    return epoch_general_cifar10(dataloader, model, loss_fn)


# ---- Penn Treebank --------------------------------------------------------------------------


def epoch_general_ptb(
    data: np.ndarray,
    model: nn.Module,
    seq_len: int = 40,
    loss_fn: Any = nn.SoftmaxLoss,
    opt: Any = None,
    clip: float | None = None,
    device: Any = None,
    dtype: str = "float32",
) -> tuple[float, float]:
    """One pass over the data: (average accuracy, average loss) per target word. With `opt` the model is trained.

    Parameters
    ----------
    data : (nbatch, batch_size) of word ids, from `needle.data.batchify`
    seq_len : words of a chunk; chunks start at range(0, nbatch - 1, seq_len), and the state goes from each to the next, detached
    clip : the largest norm of the gradients
    """
    np.random.seed(4)  # noqa: NPY002
    model.train(opt is not None)
    loss_fn, average, h = _instance(loss_fn), _Average(), None
    with ndl.set_grad_enabled(opt is not None):
        for i in range(0, data.shape[0] - 1, seq_len):
            x, y = ndl.data.get_batch(data, i, seq_len, device=device, dtype=dtype)
            logits, h = model(x, h)
            h = _detached(h)
            loss = loss_fn(logits, y)
            if opt is not None:
                _step(opt, loss, clip)
            average.add(logits, y, loss)
    return average.result()


def train_ptb(
    model: nn.Module,
    data: np.ndarray,
    seq_len: int = 40,
    n_epochs: int = 1,
    optimizer: Any = ndl.optim.SGD,
    lr: float = 4.0,
    weight_decay: float = 0.0,
    loss_fn: Any = nn.SoftmaxLoss,
    clip: float | None = None,
    device: Any = None,
    dtype: str = "float32",
) -> tuple[float, float]:
    """Train, with SGD by default: (average accuracy, average loss) of the last epoch; see `epoch_general_ptb`."""
    np.random.seed(4)  # noqa: NPY002
    opt = optimizer(model.parameters(), lr=lr, weight_decay=weight_decay)
    result = (math.nan, math.nan)
    for _ in range(n_epochs):
        result = epoch_general_ptb(data, model, seq_len, loss_fn, opt, clip, device, dtype)
    return result


def evaluate_ptb(
    model: nn.Module,
    data: np.ndarray,
    seq_len: int = 40,
    loss_fn: Any = nn.SoftmaxLoss,
    device: Any = None,
    dtype: str = "float32",
) -> tuple[float, float]:
    """(average accuracy, average loss); see `epoch_general_ptb`."""
    np.random.seed(4)  # noqa: NPY002
    return epoch_general_ptb(data, model, seq_len, loss_fn, device=device, dtype=dtype)
