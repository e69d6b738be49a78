"""Modules: what they find and compute; optimizers: their formulas over several steps; both together on handwritten digits."""

import numpy as np

import needle as ndl
from needle_nn.data import DigitsDataset
from needle_nn.learning.expect import Checks, array, close, same, true

checks = Checks()
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 4)) * 2 + 1


def tensor(values):
    return ndl.Tensor(np.asarray(values, np.float32), requires_grad=False)


def parameter(student, values):
    return student.Parameter(ndl.Tensor(np.asarray(values, np.float32)))


def shapes(module):
    return [tuple(p.shape) for p in module.parameters()]


def tree(student):
    """A module with parameters in every place where they may be, and some that occur twice."""
    shared = parameter(student, np.zeros(2))

    class Leaf(student.Module):
        def __init__(self, n):
            super().__init__()
            self.w = parameter(student, np.zeros(n))
            self.also = shared

    class Tree(student.Module):
        def __init__(self):
            super().__init__()
            self.first = parameter(student, np.zeros(1))
            self.constant = tensor([1.0, 2.0])
            self.children = [Leaf(3), (Leaf(4), {"key": Leaf(5)})]
            self.again = self.first

    return Tree(), Leaf


@checks(
    "Module.parameters: in attributes, lists, tuples and dicts",
    "a function that calls itself for each value of self.__dict__",
)
def parameters(student):
    found = sorted(set(shapes(tree(student)[0])))
    same("shapes of the parameters found", found, [(1,), (2,), (3,), (4,), (5,)])


@checks(
    "Module.parameters: each once, in order", "remember ids that you have seen; a Tensor that is no Parameter is none"
)
def parameters_once(student):
    same("shapes of the parameters, in order", shapes(tree(student)[0]), [(1,), (3,), (2,), (4,), (5,)])


@checks("Module.train and eval", "the same walk, over modules")
def modes(student):
    root, _ = tree(student)
    inner = [root, root.children[0], root.children[1][0], root.children[1][1]["key"]]
    root.eval()
    same("`training` of the module and those within it after eval()", [m.training for m in inner], [False] * 4)
    root.train()
    same("`training` of the module and those within it after train()", [m.training for m in inner], [True] * 4)


@checks("Linear", "Parameter(init.kaiming_uniform(in_features, out_features)); the bias broadcasts over rows")
def linear(student):
    layer = student.Linear(4, 3)
    same("shapes of weight and bias", [tuple(layer.weight.shape), tuple(layer.bias.shape)], [(4, 3), (1, 3)])
    same("number of parameters()", len(layer.parameters()), 2)
    true("weight: expected random numbers, given equal ones", np.ptp(layer.weight.numpy()) > 0)
    close("Linear(x)", layer(tensor(X)), X @ layer.weight.numpy() + layer.bias.numpy())


@checks("Sequential and Residual", "keep the modules in a list: parameters() looks into it")
def containers(student):
    inner = student.Linear(4, 4)
    model = student.Sequential(student.Residual(inner), student.ReLU())
    same("number of parameters()", len(model.parameters()), 2)
    expected = np.maximum(X @ inner.weight.numpy() + inner.bias.numpy() + X, 0)
    close("Sequential(Residual(Linear), ReLU)(x)", model(tensor(X)), expected)


@checks("Dropout: training", "init.randb(*x.shape, p=1 - p) keeps with probability 1 - p; divide what is kept by 1 - p")
def dropout(student):
    np.random.seed(0)  # noqa: NPY002
    layer = student.Dropout(0.25)
    y = array("Dropout(0.25)(ones)", layer(tensor(np.ones((100, 100)))), (100, 100))
    same("values in the result, rounded", sorted({round(float(v), 4) for v in np.unique(y)}), [0.0, round(4 / 3, 4)])
    true(f"share of zeros: expected about 0.25, given {np.mean(y == 0):.2f}", abs(np.mean(y == 0) - 0.25) < 0.03)


@checks("Dropout: evaluation", "ask self.training")
def dropout_eval(student):
    layer = student.Dropout(0.25)
    layer.eval()
    close("Dropout(0.25)(x) after eval()", layer(tensor(X)), X)


def normalized(x, axis, eps=1e-5):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + eps)


@checks(
    "LayerNorm1d", "mean and variance along axis 1, kept as (N, 1); the variance is the mean of squares of x - mean"
)
def layer_norm(student):
    layer = student.LayerNorm1d(4)
    close("LayerNorm1d(4)(x)", layer(tensor(X)), normalized(X, 1))
    close("LayerNorm1d(4)(x / 1000): eps counts", layer(tensor(X / 1000)), normalized(X / 1000, 1))
    layer.weight.data, layer.bias.data = tensor([1, 2, 3, 4]), tensor([5, 6, 7, 8])
    close(
        "with weight [1, 2, 3, 4], bias [5, 6, 7, 8]", layer(tensor(X)), normalized(X, 1) * [1, 2, 3, 4] + [5, 6, 7, 8]
    )


@checks("BatchNorm1d: training", "mean and variance along axis 0; the same formula otherwise")
def batch_norm(student):
    layer = student.BatchNorm1d(4)
    same("number of parameters()", len(layer.parameters()), 2)
    close("BatchNorm1d(4)(x)", layer(tensor(X)), normalized(X, 0))


@checks(
    "BatchNorm1d: running statistics",
    "running = (1 - momentum) running + momentum new, in training only; start at 0 and 1",
)
def running(student):
    layer = student.BatchNorm1d(4, momentum=0.2)
    for x in (X, X + 1):
        layer(ndl.Tensor(x, dtype="float32"))
    mean, var = 0.8 * 0.2 * X.mean(0) + 0.2 * (X + 1).mean(0), 0.64 + 0.36 * X.var(0)
    close("running_mean after two batches", layer.running_mean, mean)
    graph = [name for name in ("running_mean", "running_var") if getattr(getattr(layer, name), "op", None) is not None]
    same("running statistics that hold the graph of their batch, for want of .data", graph, [])
    close("running_var after two batches", layer.running_var, var)
    layer.eval()
    close("BatchNorm1d(x) after eval()", layer(tensor(X)), (X - mean) / np.sqrt(var + 1e-5))
    close("running_mean after eval()", layer.running_mean, mean)


STARTS = [(np.array([1.0, -2.0, 3.0]), np.array([0.5, 1.0, 2.0])), (np.array([4.0, -1.0]), np.array([1.0, 1.5]))]


def descend(student, make, update, steps=3):
    """Parameters after steps with the gradient of sum(p^2 c), beside p = p - update(gradient, p, state, t)."""
    first, second = params = [parameter(student, start) for start, _ in STARTS]
    idle = parameter(student, [7.0])
    optimizer = make([first, idle, second])
    for _ in range(steps):
        (first * first * tensor(STARTS[0][1])).sum().backward()
        (second * second * tensor(STARTS[1][1])).sum().backward()
        optimizer.step()
    close("a parameter without a gradient", idle, [7.0])
    for name, given, (p, c) in zip(("first", "second"), params, STARTS, strict=True):
        state = {}
        for t in range(1, steps + 1):
            p = p - update(2 * p * c, p, state, t)
        close(f"the {name} parameter after {steps} steps", given, p)


def sgd(lr, momentum, decay):
    def update(g, p, state, t):
        state["u"] = momentum * state.get("u", 0) + (1 - momentum) * (g + decay * p)
        return lr * state["u"]

    return update


@checks("SGD: plain", "p.data = p.data - lr * p.grad.data, for parameters whose grad is not None")
def sgd_plain(student):
    descend(student, lambda ps: student.SGD(ps, lr=0.1), sgd(0.1, 0, 0))


@checks("SGD: momentum and weight decay", "a dictionary from parameter to u; u starts at 0")
def sgd_momentum(student):
    descend(student, lambda ps: student.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.3), sgd(0.1, 0.9, 0.3))


@checks("Adam", "t counts steps from 1; eps is added outside the square root")
def adam(student):
    def update(g, p, state, t):
        g = g + 0.1 * p
        state["m"] = 0.8 * state.get("m", 0) + 0.2 * g
        state["v"] = 0.95 * state.get("v", 0) + 0.05 * g * g
        return 0.05 * (state["m"] / (1 - 0.8**t)) / (np.sqrt(state["v"] / (1 - 0.95**t)) + 0.5)

    numbers = {"lr": 0.05, "beta1": 0.8, "beta2": 0.95, "eps": 0.5, "weight_decay": 0.1}
    descend(student, lambda ps: student.Adam(ps, **numbers), update)


@checks(
    "a step keeps parameters what they are",
    "set p.data, within no_grad() or from .data: p is the same object, with no graph",
)
def same_objects(student):
    for make in (student.SGD, student.Adam):
        p = parameter(student, [1.0, 2.0])
        optimizer = make([p], lr=0.1)
        (p * p).sum().backward()
        before = p.grad.numpy().copy()
        optimizer.step()
        true(f"{make.__name__}: the parameter has a graph after step()", p.is_leaf())
        close(f"{make.__name__}: p.grad after step()", p.grad, before)
        same(f"{make.__name__}: dtype of the parameter", str(p.dtype), "float32")


@checks("it learns handwritten digits", "all checks above first")
def learns(student):
    np.random.seed(0)  # noqa: NPY002
    train, test = DigitsDataset(), DigitsDataset(train=False)
    model = student.Sequential(
        student.Linear(64, 48), student.BatchNorm1d(48), student.ReLU(),
        student.Residual(student.Sequential(student.Linear(48, 48), student.ReLU(), student.Dropout(0.1))),
        student.LayerNorm1d(48), student.Linear(48, 10),
    )  # fmt: skip
    optimizer = student.Adam(model.parameters(), lr=0.005)
    model.train()
    for _ in range(8):
        for i in range(0, 1400, 100):
            ndl.ops.cross_entropy(model(tensor(train.X[i : i + 100])), train.y[i : i + 100].astype(int)).backward()
            optimizer.step()
    model.eval()
    errors = float(np.mean(array("model(x)", model(tensor(test.X)), (360, 10)).argmax(1) != test.y))
    true(f"after 8 epochs: expected at most 12% errors on the test digits, given {errors:.0%}", errors <= 0.12)
