"""Chapter 1 by Needle itself: its operators, and `backward` where you derived gradients by hand."""

import needle as ndl


def softmax(Z):
    return ndl.ops.softmax(ndl.Tensor(Z, dtype="float64"), 1).numpy()


def softmax_loss(Z, y):
    return ndl.ops.cross_entropy(ndl.Tensor(Z, dtype="float64"), y).item()


def descend(X, y, weights, logits, lr, batch):
    for start in range(0, len(X), batch):
        params = [ndl.Tensor(w, dtype="float64") for w in weights]
        x = ndl.Tensor(X[start : start + batch], dtype="float64", requires_grad=False)
        ndl.ops.cross_entropy(logits(x, *params), y[start : start + batch]).backward()
        for w, p in zip(weights, params, strict=True):
            w -= lr * p.grad.numpy()


def softmax_regression_epoch(X, y, theta, lr=0.1, batch=100):
    descend(X, y, [theta], lambda x, theta: x @ theta, lr, batch)


def nn_epoch(X, y, W1, W2, lr=0.1, batch=100):
    descend(X, y, [W1, W2], lambda x, W1, W2: ndl.relu(x @ W1) @ W2, lr, batch)
