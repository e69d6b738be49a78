"""Accumulated gradients and averages of unequal batches are those of one large batch."""

import math

import numpy as np
import pytest
from trainer_helpers import seeded  # noqa: F401  a fixture

import needle as ndl
from needle import ops
from needle_nn import nn, optim
from needle_nn.data import DataLoader, NDArrayDataset
from needle_nn.training import Accuracy, Callback, Mean, Trainer, accuracy

RNG = np.random.RandomState(0)
PADDING = 3
CLASSES = 4


class ClassWeights(nn.Module):
    """A loss with a weight for each class, whose mean is over the weights."""

    def __init__(self):
        super().__init__()
        self.weights = np.array([1.0, 0.25, 3.0, 0.0])

    def forward(self, logits, y):
        w = ndl.Tensor(self.weights[y.numpy()], dtype="float64", requires_grad=False)
        return (ops.cross_entropy(logits, y, reduction="none") * w).sum() / self.count_targets(y)

    def count_targets(self, y):
        return self.weights[y.numpy()].sum()


def labels(*shape):
    return RNG.randint(0, CLASSES, shape)


#: (loss, targets of n examples)
LOSSES = {
    "softmax": (nn.SoftmaxLoss(), lambda n: labels(n)),
    "padding": (nn.SoftmaxLoss(ignore_index=PADDING), lambda n: labels(n)),
    "smoothed": (nn.SoftmaxLoss(ignore_index=PADDING, label_smoothing=0.1), lambda n: labels(n)),
    "class weights": (ClassWeights(), lambda n: labels(n)),
    "squares": (nn.MSELoss(), lambda n: RNG.randn(n, CLASSES)),
    "absolute": (nn.L1Loss(), lambda n: RNG.randn(n, CLASSES)),
    "sum of squares": (nn.MSELoss(reduction="sum"), lambda n: RNG.randn(n, CLASSES)),
    "a function": (lambda output, y: ops.cross_entropy(output, y), lambda n: labels(n)),
}

#: Sizes of the batches, and how many make a step; the last group may have fewer.
SIZES = {
    "equal": ([4, 4], 2),
    "unequal": ([1, 7], 2),
    "three": ([5, 1, 9], 3),
    "a short last batch": ([6, 6, 6, 1], 4),
    "the last group is smaller": ([2, 9, 4, 7, 1], 3),
    "a last group of one": ([2, 9, 4], 2),
    "more than there are": ([3, 8, 2], 10),
}


def batches(sizes, make, x=lambda n: RNG.randn(n, 6)):
    return [(x(n), make(n)) for n in sizes]


def joined(parts, together):
    """The large batches that groups of `together` small ones make."""
    groups = [parts[i : i + together] for i in range(0, len(parts), together)]
    return [tuple(np.concatenate(field) for field in zip(*group, strict=True)) for group in groups]


def tensors(parts):
    return [(ndl.Tensor(x, dtype="float64", requires_grad=False), target(y)) for x, y in parts]


def target(y):
    return ndl.Tensor(y, dtype="float64" if y.dtype.kind == "f" else None, requires_grad=False)


class Steps(Callback):
    """The loss at every step."""

    def __init__(self):
        self.losses = []

    def on_step_end(self, trainer):
        self.losses.append(trainer.last_loss)


class Unsized:
    def __init__(self, parts):
        self.parts = parts

    def __iter__(self):
        return iter(self.parts)


def train(parts, loss, accumulate, sized=True, **options):
    """(parameters after an epoch, losses of its steps, the epoch's logs, an evaluation)"""
    np.random.seed(0)  # noqa: NPY002
    ndl.random.seed(0)
    model = nn.Sequential(nn.Linear(6, 5, dtype="float64"), nn.Tanh(), nn.Linear(5, CLASSES, dtype="float64"))
    steps = Steps()
    made = Trainer(
        model, optim.SGD(model.parameters(), lr=0.1), loss, accumulate=accumulate, callbacks=[steps], **options
    )
    logs = made.fit(parts if sized else Unsized(parts), 1)
    return [p.numpy() for p in model.parameters()], steps.losses, logs, made.evaluate(parts)


def check(parts, loss, accumulate, sized=True, **options):
    small = train(tensors(parts), loss, accumulate, sized, **options)
    large = train(tensors(joined(parts, accumulate)), loss, 1, **options)
    for a, b in zip(small[0], large[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(small[1], large[1], rtol=1e-12)
    for found, wanted in zip(small[2:], large[2:], strict=True):
        assert found == {name: pytest.approx(value, rel=1e-12) for name, value in wanted.items()}


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", LOSSES)
def test_a_group_of_batches_is_one_large_batch(name, sizes, sized):
    """Gradients, and the losses of steps, epoch and evaluation."""
    loss, make = LOSSES[name]
    lengths, accumulate = SIZES[sizes]
    check(batches(lengths, make), loss, accumulate, sized)


@pytest.mark.parametrize("clip_norm", [None, 0.05])
def test_clipping_sees_the_gradient_of_the_step(clip_norm):
    check(batches([1, 7, 3], lambda n: labels(n)), nn.SoftmaxLoss(), 3, clip_norm=clip_norm)


IGNORED = {
    "the first": [[PADDING] * 3, [0, 1, 2, PADDING]],
    "the last": [[0, 1, PADDING], [PADDING] * 5],
    "in the middle": [[0, 1], [PADDING] * 4, [2]],
    "most": [[PADDING, PADDING, PADDING, 1], [0, 1, 2, 2, 2, 0]],
}


@pytest.mark.parametrize("case", IGNORED)
def test_batches_whose_targets_are_all_ignored(case):
    """Their own mean is NaN; in a large batch they count nothing."""
    parts = [(RNG.randn(len(y), 6), np.array(y)) for y in IGNORED[case]]
    metrics = {"accuracy": Accuracy(ignore_index=PADDING), "all": accuracy}
    check(parts, nn.SoftmaxLoss(ignore_index=PADDING), len(parts), metrics=metrics)


def test_a_step_without_any_target_changes_nothing():
    parts = tensors([(RNG.randn(2, 6), np.full(2, PADDING))] * 2)
    before = train(tensors([]) + parts[:1], nn.SoftmaxLoss(ignore_index=PADDING), 1)[0]
    params, _, logs, evaluated = train(parts, nn.SoftmaxLoss(ignore_index=PADDING), 2)
    for a, b in zip(params, before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert math.isnan(logs["loss"]) and math.isnan(evaluated["loss"])


def test_a_loader_with_a_short_last_batch():
    x, y = RNG.randn(11, 6).astype("float32"), labels(11)
    results = []
    for size, accumulate in ((4, 3), (11, 1)):
        np.random.seed(0)  # noqa: NPY002
        ndl.random.seed(0)
        model = nn.Linear(6, CLASSES)
        made = Trainer(model, optim.SGD(model.parameters(), lr=1.0), nn.SoftmaxLoss(), accumulate=accumulate)
        made.fit(DataLoader(NDArrayDataset(x, y), size), 1)
        results.append(model.weight.numpy())
    np.testing.assert_allclose(*results, rtol=2e-6, atol=1e-7)


def test_averages_of_metrics_are_weighted_as_they_count():
    parts = batches([1, 7, 3], lambda n: labels(n))
    metrics = {"all": accuracy, "kept": Accuracy(ignore_index=PADDING), "two": Accuracy(2)}
    check(parts, nn.SoftmaxLoss(), 3, metrics=metrics)


def test_mean_of_nothing():
    mean = Mean()
    mean.add(math.nan, 0)
    mean.add(2.0, 0.5)
    assert mean.value == 2.0
    other = Mean()
    other.load_state_dict(mean.state_dict())
    assert other.value == 2.0
