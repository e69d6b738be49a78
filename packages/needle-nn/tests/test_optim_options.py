"""What optimizers accept: parameters, groups, numbers; and the line that says what is wrong."""

import doctest
import importlib
import itertools

import numpy as np
import pytest
from optim_formulas import parameters, set_gradients

import needle as ndl
from needle import nn, optim

w, b = ndl.Tensor([1.0, 2.0]), ndl.Tensor([3.0])
whole = ndl.Tensor([1, 2], dtype="int32")

#: (call, the error and its one line)
ERRORS = [
    ("SGD([])", "ValueError: SGD: no parameters"),
    ("SGD(x for x in ())", "ValueError: SGD: no parameters"),
    ("SGD(w)", "TypeError: SGD: expected an iterable of parameters, got Tensor"),
    ("SGD(None)", "TypeError: SGD: expected an iterable of parameters, got NoneType"),
    ("SGD(3)", "TypeError: SGD: expected an iterable of parameters, got int"),
    ("SGD([w, 3])", "TypeError: SGD: parameter 1: expected a Tensor, got int"),
    ("SGD([w, b, w])", "ValueError: SGD: parameter 2 comes twice"),
    ("SGD([whole])", "TypeError: SGD: parameter 0 is int32, expected float32 or float64"),
    ("SGD({'params': [w]})", "TypeError: SGD: expected an iterable of parameters, got dict"),
    ("SGD([{'params': [w]}, {'params': [w]}])", "ValueError: SGD: parameter 1 comes twice"),
    ("SGD([{'params': [w]}, {'params': []}])", "ValueError: SGD: group 1: no parameters"),
    ("SGD([{'params': [w]}, b])", "TypeError: SGD: group 1: expected a dict with params, got Tensor"),
    ("SGD([{'params': 3}])", "TypeError: SGD: expected an iterable of parameters, got int"),
    ("SGD([{'lr': 1}])", "TypeError: SGD: expected a dict with params, got one with lr"),
    ("Newton([{'params': w, 'rho': 1}])", "ValueError: Newton: unknown option 'rho'; known: lr, damping"),
    ("SGD([{'params': w}, {'params': b, 'lr': -1}])", "ValueError: SGD: group 1: lr = -1: expected a number from 0 on"),
    ("SGD([w], lr=-1)", "ValueError: SGD: lr = -1: expected a number from 0 on"),
    ("SGD([w], lr=None)", "ValueError: SGD: lr = None: expected a number from 0 on"),
    ("SGD([w], lr=float('nan'))", "ValueError: SGD: lr = nan: expected a number from 0 on"),
    ("SGD([w], momentum=1)", "ValueError: SGD: momentum = 1: expected a number in [0, 1)"),
    ("SGD([w], nesterov=True)", "ValueError: SGD: nesterov needs a momentum"),
    ("SGD([w], momentum=0.5, unbiased=True, dampening=0)", "ValueError: SGD: unbiased goes without dampening"),
    ("Adam([w], beta2=1.0)", "ValueError: Adam: beta2 = 1.0: expected a number in [0, 1)"),
    ("AdamW([w], weight_decay='a')", "ValueError: AdamW: weight_decay = 'a': expected a number from 0 on"),
    ("setattr(SGD([w]), 'lr', -3)", "ValueError: SGD: lr = -3: expected a number from 0 on"),
    ("Optimizer([w]).update({}, [], [], [])", "NotImplementedError: Optimizer.update"),
    ("LBFGS([w]).step()", "TypeError: LBFGS.step: expected a function that computes the loss, got None"),
    ("LBFGS([w]).step(lambda: 3)", "TypeError: LBFGS.step: the closure returned 3, expected a loss of one element"),
    ("LBFGS([{'params': w}, {'params': b}]).step(lambda: 3)", "ValueError: LBFGS: one group of parameters only, got 2"),
    ("LBFGS([w], max_iter=0)", "ValueError: LBFGS: max_iter = 0: expected an int from 1 on"),
    ("EMA([])", "ValueError: EMA: no parameters"),
    ("EMA([w, w])", "ValueError: EMA: a parameter comes twice"),
    ("EMA([3])", "TypeError: EMA: parameter 0: expected a Tensor, got int"),
    ("EMA([w], decay=1)", "ValueError: EMA: decay = 1: expected a number in [0, 1)"),
    ("EarlyStopping(0)", "ValueError: EarlyStopping: patience = 0: expected an int from 1 on"),
    ("EarlyStopping(mode='least')", "ValueError: EarlyStopping: mode = 'least': expected 'min' or 'max'"),
    ("clip_grad_norm(3, 1.0)", "TypeError: clip_grad_norm: expected Tensors, got int"),
    ("clip_grad_norm([w, 3], 1.0)", "TypeError: clip_grad_norm: parameter 1: expected a Tensor, got int"),
    ("clip_grad_norm([w], -1)", "ValueError: clip_grad_norm: max_norm = -1: expected a number from 0 on"),
    ("clip_grad_norm([w], 1, norm_type=0)", "ValueError: clip_grad_norm: norm_type = 0: expected a positive number"),
    ("clip_grad_value([w], -1)", "ValueError: clip_grad_value: clip_value = -1: expected a number from 0 on"),
    ("Adam([w], betas=0.9)", "ValueError: Adam: betas = 0.9: expected two numbers"),
    ("Lion([w], betas=(0.9, 1.0))", "ValueError: Lion: beta2 = 1.0: expected a number in [0, 1)"),
    ("SGD([w]).add_param_group({'params': w})", "ValueError: SGD: a parameter of the new group is in another one already"),
    ("lr_scheduler.SequentialLR(SGD([w]), [], [1])", "ValueError: SequentialLR: 0 schedules and 1 milestones: expected one less"),
    ("lr_scheduler.OneCycleLR(SGD([w]), 1.0)", "ValueError: OneCycleLR: epochs = None: expected an int from 1 on"),
    ("lr_scheduler.OneCycleLR(SGD([w]), 1, 3, anneal_strategy='a')",
     "ValueError: OneCycleLR: anneal_strategy 'a': expected 'cos' or 'linear'"),
    ("lr_scheduler.LambdaLR(SGD([w]), [3])", "TypeError: LambdaLR: lr_lambda: expected a function, got int"),
    ("StepLR(w, 3)", "TypeError: StepLR: expected an Optimizer, got Tensor"),
    ("StepLR(SGD([w]), 0)", "ValueError: StepLR: step_size = 0: expected an int from 1 on"),
    ("StepLR(SGD([w]), 1.5)", "ValueError: StepLR: step_size = 1.5: expected an int from 1 on"),
    ("LambdaLR(SGD([w]), 3)", "TypeError: LambdaLR: factor: expected a function, got int"),
    ("WarmupLR(SGD([w]), 3, after=StepLR(SGD([w]), 1))", "TypeError: WarmupLR: after: expected a Schedule of the same optimizer"),
    ("ReduceOnPlateau(SGD([w])).step()", "TypeError: ReduceOnPlateau.step: expected the value of a metric"),
    ("ReduceOnPlateau(SGD([w]), factor=1)", "ValueError: ReduceOnPlateau: factor = 1: expected a number in [0, 1)"),
]  # fmt: skip


@pytest.mark.parametrize("call, message", ERRORS, ids=[call for call, _ in ERRORS])
def test_errors(call, message):
    with pytest.raises(Exception) as caught:
        eval(call, {"w": w, "b": b, "whole": whole, **vars(optim)})
    assert f"{type(caught.value).__name__}: {caught.value}" == message


@pytest.mark.parametrize("kind", [list, tuple, iter, lambda p: (q for q in p), lambda p: dict.fromkeys(p).keys()])
def test_params_may_be_any_iterable(kind):
    params, _ = parameters()
    optimizer = optim.SGD(kind(params))
    assert len(optimizer.params) == len(params)
    assert all(p is q for p, q in zip(optimizer.params, params, strict=True))


def test_groups_have_numbers_of_their_own():
    params, values = parameters(shapes=[(3,), (4,), (2,)])
    groups = [{"params": params[:1], "lr": 0.5}, {"params": params[1], "weight_decay": 1.0}, {"params": params[2:]}]
    optimizer = optim.SGD(groups, lr=0.25)
    grads = set_gradients(params, 0)
    optimizer.step()
    half, quarter = np.float32(0.5), np.float32(0.25)
    expected = values[0] - half * grads[0], values[1] - quarter * (grads[1] + values[1]), values[2] - quarter * grads[2]
    for p, value in zip(params, expected, strict=True):
        np.testing.assert_array_equal(p.numpy(), value)
    assert "lr" not in groups[1], "the caller's dicts are not changed"


def test_numbers_are_attributes():
    params, _ = parameters(shapes=[(3,), (4,)])
    optimizer = optim.Adam([{"params": params[0], "lr": 0.5}, {"params": params[1]}], lr=0.25)
    assert (optimizer.lr, optimizer.beta1, optimizer.t) == (0.5, 0.9, 0)
    optimizer.lr = 0.125
    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.125]
    optimizer.lr *= 2
    assert optimizer.lr == 0.25
    assert repr(optimizer).startswith("Adam(2 parameters, 2 groups, lr=0.25, beta1=0.9")


def test_course_subclass():
    """Optimizers of the course override step, and have their numbers as plain attributes."""

    class Plain(optim.Optimizer):
        def __init__(self, params, lr=0.01):
            super().__init__(params)
            self.lr = lr

        def step(self):
            for p in self.params:
                p.data = p.data - self.lr * p.grad.data

    x = ndl.Tensor([1.0, 2.0])
    optimizer = Plain([x], lr=0.5)
    (x * x).sum().backward()
    optimizer.step()
    optimizer.reset_grad()
    assert x.tolist() == [0, 0] and x.grad is None


MODULES = "adam adaptive averaging clipping lbfgs newton optimizer options schedules sgd stopping".split()


@pytest.mark.parametrize("name", ["needle_nn.optim", *[f"needle_nn.optim.{name}" for name in MODULES]])
def test_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert failed == 0 and (tried or name.endswith("options"))


@pytest.mark.parametrize(
    "take",
    [
        optim.SGD,
        optim.Adam,
        lambda given: optim.SGD([{"params": given}]),
        optim.EMA,
        lambda given: optim.clip_grad_norm(given, 1.0),
        lambda given: optim.clip_grad_value(given, 1.0),
        optim.grad_norm,
    ],
    ids=["SGD", "Adam", "group", "EMA", "clip_grad_norm", "clip_grad_value", "grad_norm"],
)
def test_endless_parameters(take):
    """An iterator that does not end is refused, as an endless shape is."""
    w = nn.Parameter([1.0])
    w.grad = ndl.Tensor([1.0])
    with pytest.raises(ValueError, match="more than 1,048,576 items from a repeat"):
        take(itertools.repeat(w))


def test_betas_as_in_pytorch():
    """Both at once, in the place of beta1 too, and for a group."""
    for adam in (
        optim.Adam([w], betas=(0.5, 0.75)),
        optim.AdamW([w], 0.1, (0.5, 0.75)),
        optim.Lion([w], betas=[0.5, 0.75]),
    ):
        assert (adam.beta1, adam.beta2) == (0.5, 0.75)
    adam = optim.Adam([{"params": w, "betas": (0.5, 0.75)}, {"params": b}])
    assert [(group["beta1"], group["beta2"]) for group in adam.param_groups] == [(0.5, 0.75), (0.9, 0.999)]


def test_groups_are_added():
    sgd = optim.SGD([w], lr=0.5)
    sgd.add_param_group({"params": [b], "lr": 0.25})
    assert [group["lr"] for group in sgd.param_groups] == [0.5, 0.25] and sgd.params == [w, b]


def test_gradients_become_zeros_where_asked():
    params, _ = parameters()
    set_gradients(params[:2], 0)
    optim.SGD(params).zero_grad(set_to_none=False)
    assert not params[0].grad.numpy().any() and params[0].grad.shape == params[0].shape and params[2].grad is None


def test_a_closure_is_called_before_the_step():
    x = ndl.Tensor([2.0])
    sgd = optim.SGD([x], lr=0.25)

    def closure():
        loss = (x * x).sum()
        loss.backward()
        return loss

    assert sgd.step(closure).item() == 4.0 and x.tolist() == [1.0]
