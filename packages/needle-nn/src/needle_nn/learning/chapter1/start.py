"""Chapter 1: softmax regression and a two-layer network by hand.

The text is in chapter1.md; `needle learn check 1` checks this file.
Arrays are NumPy's. Replace each `raise NotImplementedError` by your code.
"""

import numpy as np


def softmax(Z):
    """Probabilities from logits: each row of Z (B, K) becomes exp(z) / sum(exp(z)). Logits may be as large as 1000."""
    raise NotImplementedError


def softmax_loss(Z, y):
    """The mean over the rows of -log(softmax(Z)[row, y[row]]), a number. y (B,) holds the right classes, integers."""
    raise NotImplementedError


def softmax_regression_epoch(X, y, theta, lr=0.1, batch=100):
    """One epoch of gradient descent for the logits X @ theta, which changes theta (n, K) in place.

    Take the examples in order, `batch` at a time; the last batch may be short.
    """
    raise NotImplementedError


def nn_epoch(X, y, W1, W2, lr=0.1, batch=100):
    """The same for the logits relu(X @ W1) @ W2: changes W1 (n, H) and W2 (H, K) in place."""
    raise NotImplementedError
