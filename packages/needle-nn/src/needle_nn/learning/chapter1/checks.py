"""Softmax, its loss, and two epochs of gradient descent: against formulas, finite differences, and handwritten digits."""

import numpy as np

from needle_nn.data import DigitsDataset
from needle_nn.learning.expect import Checks, Wrong, array, close, slope, true

checks = Checks()
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(5, 4)) * 2
LABELS = np.array([0, 3, 1, 1, 2])
X = RNG.normal(size=(7, 3))
Y = np.array([0, 1, 2, 1, 1, 0, 2])
THETA = RNG.normal(size=(3, 3)) * 0.5
W1, W2 = RNG.normal(size=(3, 6)) * 0.5, RNG.normal(size=(6, 3)) * 0.5


def loss(logits, y):
    return float(np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]))


def regression_loss(theta, x, y):
    return loss(x @ theta, y)


def network_loss(a, b, x, y):
    return loss(np.maximum(x @ a, 0) @ b, y)


def epoch(function, weights, batch, lr):
    """The weights after an epoch, by finite differences."""
    weights = [w.copy() for w in weights]
    for i in range(0, len(X), batch):
        x, y = X[i : i + batch], Y[i : i + batch]
        steps = [slope(lambda *w, x=x, y=y: function(*w, x, y), weights, k) for k in range(len(weights))]
        weights = [w - lr * step for w, step in zip(weights, steps, strict=True)]
    return weights


@checks("softmax: values", "exp(Z) divided by its sum along axis 1, with keepdims=True")
def softmax_values(student):
    close("softmax(Z)", student.softmax(Z.copy()), np.exp(Z) / np.exp(Z).sum(1, keepdims=True))


@checks("softmax: logits of 1000", "subtract the largest logit of each row before exp")
def softmax_large(student):
    close("softmax([[1000, 1001], [-1000, 0]])", student.softmax(np.array([[1000.0, 1001.0], [-1000.0, 0.0]])),
          [[1 / (1 + np.e), np.e / (1 + np.e)], [0, 1]])  # fmt: skip


@checks("softmax: leaves its argument as it was", "make a new array instead of Z -= ...")
def softmax_pure(student):
    given = Z.copy()
    student.softmax(given)
    close("Z after softmax(Z)", given, Z, 0)


@checks(
    "softmax_loss: values", "log of the sum of exp along axis 1, minus Z[arange(B), y], then the mean over the batch"
)
def loss_values(student):
    close("softmax_loss(Z, y)", student.softmax_loss(Z.copy(), LABELS), loss(Z, LABELS))


@checks("softmax_loss: logits of 1000", "log(sum(exp(z))) = m + log(sum(exp(z - m))) for the largest logit m")
def loss_large(student):
    close("softmax_loss([[1000, 0]], [1])", student.softmax_loss(np.array([[1000.0, 0.0]]), np.array([1])), 1000.0)


@checks("softmax_regression_epoch: one batch", "theta -= lr * X.T @ (softmax(X @ theta) - one_hot(y)) / B")
def regression_step(student):
    theta = THETA.copy()
    student.softmax_regression_epoch(X.copy(), Y, theta, lr=0.5, batch=7)
    changed(theta, THETA, "theta")
    close("theta after a step with lr=0.5", theta, *epoch(regression_loss, [THETA], 7, 0.5))


@checks(
    "softmax_regression_epoch: several batches", "batches in order; the mean of a short last batch is over its own size"
)
def regression_batches(student):
    theta = THETA.copy()
    student.softmax_regression_epoch(X.copy(), Y, theta, lr=0.2, batch=3)
    close("theta after batches of 3, 3 and 1", theta, *epoch(regression_loss, [THETA], 3, 0.2))


@checks("nn_epoch: one batch", "compute both gradients from the old weights, then change both; relu'(z) is (z > 0)")
def network_step(student):
    given = [W1.copy(), W2.copy()]
    student.nn_epoch(X.copy(), Y, *given, lr=0.5, batch=7)
    for name, w, before, after in zip(
        ("W1", "W2"), given, (W1, W2), epoch(network_loss, [W1, W2], 7, 0.5), strict=True
    ):
        changed(w, before, name)
        close(f"{name} after a step with lr=0.5", w, after)


@checks("nn_epoch: several batches", "batches in order; the mean of a short last batch is over its own size")
def network_batches(student):
    given = [W1.copy(), W2.copy()]
    student.nn_epoch(X.copy(), Y, *given, lr=0.2, batch=3)
    for name, w, after in zip(("W1", "W2"), given, epoch(network_loss, [W1, W2], 3, 0.2), strict=True):
        close(f"{name} after batches of 3, 3 and 1", w, after)


@checks(
    "it learns handwritten digits", "all checks above first; then X @ theta and the signs of the gradients once more"
)
def learns(student):
    train, test = DigitsDataset(), DigitsDataset(train=False)
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=(64, 50)) / 8, rng.normal(size=(50, 10)) / 7]
    for _ in range(20):
        student.nn_epoch(train.X.astype(float), train.y.astype(int), *weights, lr=0.2, batch=50)
    guessed = array("W2", np.maximum(test.X @ weights[0], 0) @ weights[1], (360, 10)).argmax(1)
    errors = float(np.mean(guessed != test.y))
    true(f"after 20 epochs: expected at most 12% errors on the test digits, given {errors:.0%}", errors <= 0.12)


def changed(found, before, name):
    if np.array_equal(found, before):
        raise Wrong(f"{name} did not change: the function has to change the array itself, as `{name} -= ...` does")
