"""Metrics against numbers found by hand."""

import math

import numpy as np
import pytest

import needle as ndl
from needle_nn.training import Mean, accuracy, confusion_matrix, perplexity, top_k_accuracy

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.4, 0.4, 0.2]])


@pytest.mark.parametrize(
    ("made", "value"),
    [
        (lambda: accuracy(SCORES, [1, 1, 2, 0]), 0.75),
        (lambda: accuracy(ndl.Tensor(SCORES), ndl.Tensor([1, 1, 2, 1])), 0.5),  # of equal scores the first
        (lambda: accuracy(SCORES.reshape(2, 2, 3), np.array([[1, 0], [2, 0]])), 1.0),
        (lambda: top_k_accuracy(SCORES, [2, 1, 0, 1], 2), 1.0),
        (lambda: top_k_accuracy(SCORES, [0, 2, 1, 2], 2), 0.0),
        (lambda: confusion_matrix(SCORES, [1, 1, 2, 0]).tolist(), [[1, 0, 0], [1, 1, 0], [0, 0, 1]]),
        (lambda: confusion_matrix(SCORES[:2, :2], [1, 0], 3).tolist(), [[1, 0, 0], [0, 1, 0], [0, 0, 0]]),
        (lambda: perplexity(math.log(7)), pytest.approx(7)),
        (lambda: perplexity(1e9), math.inf),
        (lambda: math.isnan(Mean().value), True),
    ],
)
def test_metrics(made, value):
    assert made() == value


@pytest.mark.parametrize("call", [lambda: accuracy(SCORES, [1, 2]), lambda: top_k_accuracy(SCORES, [0, 0, 0, 0], 4)])
def test_metrics_refuse(call):
    with pytest.raises(ValueError, match=r"expected \(..., classes\)|there are 3 classes"):
        call()
