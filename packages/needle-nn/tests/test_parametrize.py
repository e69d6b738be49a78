"""Weights as functions of other parameters: parametrize, weight_norm, spectral_norm, beside PyTorch's and on their own."""

import copy
import doctest

import numpy as np
import pytest

import needle as ndl
from needle import nn
from needle.nn.utils import parametrizations, parametrize, remove_spectral_norm, remove_weight_norm

IMAGE = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype("float32")


class Symmetric:
    """Of a square weight the upper triangle counts; for either framework."""

    @staticmethod
    def of(t):
        class Made(t.nn.Module):
            def forward(self, x):
                return x.triu() + x.triu(1).transpose(0, 1)

            def right_inverse(self, x):
                return x.triu()

        return Made()


LAYERS = {
    "spectral norm": lambda t, of: of.spectral_norm(t.nn.Linear(5, 4)),
    "of a convolution": lambda t, of: of.spectral_norm(t.nn.Conv2d(3, 4, 3), n_power_iterations=2),
    "of a transposed one": lambda t, of: of.spectral_norm(t.nn.ConvTranspose2d(3, 4, 3)),
    "of a bias": lambda t, of: of.spectral_norm(t.nn.Linear(5, 4), name="bias"),
    "weight norm": lambda t, of: of.weight_norm(t.nn.Linear(5, 4)),
    "weight norm of a convolution": lambda t, of: of.weight_norm(t.nn.Conv2d(3, 4, 3)),
    "one length": lambda t, of: of.weight_norm(t.nn.Linear(5, 4), dim=None),
    "axis 1": lambda t, of: of.weight_norm(t.nn.Linear(5, 4), dim=1),
    "own": lambda t, of: t.nn.utils.parametrize.register_parametrization(t.nn.Linear(5, 5), "weight", Symmetric.of(t)),
    "both": lambda t, of: t.nn.utils.parametrize.register_parametrization(
        of.spectral_norm(t.nn.Linear(5, 5)), "weight", Symmetric.of(t)
    ),
}


def train(t, name):
    """Losses, outputs, and the names of the state, from weights that are given."""
    layer, values = LAYERS[name](t, t.nn.utils.parametrizations), np.random.default_rng(1)
    with t.no_grad():
        for p in layer.parameters():
            p.copy_(t.tensor(np.asarray(values.normal(size=tuple(p.shape)), "float32")))
        for b in layer.buffers():
            value = values.normal(size=tuple(b.shape)).astype("float32")
            b.copy_(t.tensor(value / np.linalg.norm(value)))
    optimizer, trace = t.optim.SGD(layer.parameters(), lr=0.05), []
    for _ in range(4):
        y = layer(t.tensor(IMAGE))
        loss = (y * y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trace.append(loss.item())
    layer.eval()
    shown = layer(t.tensor(IMAGE)).detach().numpy()
    return np.array(trace), shown, list(layer.state_dict()), type(layer).__name__


@pytest.mark.parity
@pytest.mark.parametrize("name", LAYERS)
def test_like_pytorch(name):
    torch = pytest.importorskip("torch")
    losses, shown, names, kind = train(torch, name)
    with ndl.compat("torch"):
        ours = train(ndl, name)
    np.testing.assert_allclose(ours[0], losses, rtol=1e-5)
    np.testing.assert_allclose(ours[1], shown, rtol=1e-4, atol=1e-5)
    assert ours[2:] == (names, kind)


@pytest.mark.parametrize(
    "make", [lambda: nn.Linear(5, 4), lambda: nn.Conv2d(3, 4, 3), lambda: nn.ConvTranspose2d(3, 4, 3)]
)
def test_the_largest_singular_value_becomes_1(make):
    """With Needle's axes: every weight as a matrix of the outputs and all else."""
    layer = parametrizations.spectral_norm(make(), n_power_iterations=40)
    at = -2 if isinstance(layer, nn.ConvTranspose2d) else -1
    matrix = np.moveaxis(layer.weight.numpy(), at, 0).reshape(4, -1)
    np.testing.assert_allclose(np.linalg.svd(matrix)[1][0], 1, rtol=1e-4)
    assert layer.parametrizations["weight"][0]._u.shape == (4,)


def test_a_layer_begins_with_its_weight_and_can_be_given_another():
    plain = nn.Linear(5, 4)
    layer = parametrizations.weight_norm(copy.deepcopy(plain))
    np.testing.assert_allclose(layer.weight.numpy(), plain.weight.numpy(), rtol=1e-6)
    layer.weight = ndl.ones(5, 4)
    np.testing.assert_allclose(layer.weight.numpy(), 1, rtol=1e-6)
    assert (
        isinstance(layer, nn.Linear)
        and parametrize.is_parametrized(layer, "weight")
        and not parametrize.is_parametrized(plain)
    )


def test_it_ends():
    layer = nn.utils.weight_norm(nn.Linear(5, 4))
    value = layer.weight.numpy()
    assert type(remove_weight_norm(layer)) is nn.Linear
    assert [name for name, _ in layer.named_parameters()] == ["bias", "weight"]
    np.testing.assert_array_equal(layer.weight.numpy(), value)
    conv = nn.utils.spectral_norm(nn.Conv2d(3, 4, 3))
    original = conv.parametrizations["weight"].original
    assert parametrize.remove_parametrizations(conv, "weight", leave_parametrized=False).weight is original
    assert type(remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(5, 4)))) is nn.Linear


def test_copies_states_and_captured_steps():
    layer = nn.utils.spectral_norm(nn.Linear(5, 4))
    twin = copy.deepcopy(layer)
    assert sorted(layer.state_dict()) == sorted(twin.state_dict()) and len(layer.state_dict()) == 4
    x, weights = ndl.tensor(IMAGE), []
    for module, wrap in ((layer, lambda f: f), (twin, ndl.capture)):
        optimizer = ndl.optim.SGD(module.parameters(), lr=0.1)

        def step(x, module=module, optimizer=optimizer):
            optimizer.reset_grad()
            loss = (module(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step)
        weights.append([step(x).item() for _ in range(6)] + [layer.eval() and module.state_dict()])
        module.train()
    assert weights[0][:-1] == weights[1][:-1] and not step.refusals and step.plans[0].replays >= 3
    for name, value in weights[0][-1].items():
        np.testing.assert_array_equal(value.numpy(), weights[1][-1][name].numpy())


@pytest.mark.parametrize("module", [parametrizations, parametrize])
def test_examples(module):
    failed, tried = doctest.testmod(module)
    assert tried > 0 and failed == 0


class Half(nn.Module):
    def forward(self, x):
        return x[:1]


def test_mistakes_are_named():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(5, 4))
    for wrong, message in {
        (
            lambda: parametrize.register_parametrization(nn.Linear(5, 4), "kernel", Half())
        ): "Linear has no Parameter 'kernel'",
        (
            lambda: parametrize.register_parametrization(nn.Linear(5, 4), "weight", Half())
        ): r"shape \(5, 4\) becomes \(1, 4\)",
        (lambda: parametrize.remove_parametrizations(nn.Linear(5, 4), "weight")): "has no parametrization of 'weight'",
        (lambda: parametrize.remove_parametrizations(layer, "weight", False)): "is made of 2 originals",
        (lambda: nn.utils.weight_norm(nn.Linear(5, 4), dim=1)): "weight_norm: dim 1: expected 0, the outputs",
        (lambda: nn.utils.spectral_norm(nn.Linear(5, 4), n_power_iterations=0)): "n_power_iterations = 0",
    }.items():
        with pytest.raises(ValueError, match=message):
            wrong()
    with pytest.raises(RuntimeError, match="Twice has no right_inverse: the weight that it makes cannot be set"):
        parametrize.register_parametrization(nn.Linear(5, 4), "weight", Twice()).weight = ndl.ones(5, 4)


class Twice(nn.Module):
    def forward(self, x):
        return x * 2
