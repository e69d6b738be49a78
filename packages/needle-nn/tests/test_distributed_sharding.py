"""ZeRO-1: states shared out among ranks give the steps and the state_dict of an optimizer that has them all."""

import numpy as np
import pytest
from distributed_threads import together

import needle as ndl
import needle.distributed as dist
from needle_nn import optim
from needle_nn.packing import pack

SIZES = [(5, 7), (1,), (33,), (0, 3), (2, 2)]
OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "plain sgd": lambda p: optim.SGD(p, lr=0.1),
    "adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1),
    "groups": lambda p: optim.AdamW([{"params": p[:2], "lr": 0.3}, {"params": p[2:]}], lr=0.01),
}


def params():
    made = [ndl.Tensor(np.random.RandomState(i).randn(*shape), dtype="float32") for i, shape in enumerate(SIZES)]
    made[3:] = [ndl.Tensor(p.numpy(), dtype="float64") for p in made[3:]]
    made[0].data = ndl.Tensor(np.ascontiguousarray(made[0].numpy().T), dtype="float32").transpose()  # not compact
    return made


def train(optimizer, held, steps, first=0):
    """Some steps; the last parameter but one never has a gradient, the first has none in the second step."""
    schedule = optim.StepLR(optimizer, 2, 0.5)
    for step in range(first, first + steps):
        optimizer.reset_grad()
        for i, p in enumerate(held):
            if i != 3 and (i, step) != (0, 1):
                values = np.random.RandomState(step * 10 + i).randn(*p.shape)
                p.grad = ndl.Tensor(values, dtype=p.dtype, requires_grad=False)
        optim.clip_grad_norm(optimizer.params, 1.0)
        optimizer.step()
        schedule.step()


def bits(held):
    return [p.numpy().tobytes() for p in held]


def packed(state):
    arrays, text = pack(state)
    return text, {name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()}


def alone(name, steps=4):
    held = params()
    optimizer = OPTIMIZERS[name](held)
    train(optimizer, held, steps)
    return held, optimizer


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_and_states_have_the_bits_of_one_process(name, size):
    held, optimizer = alone(name)
    wanted, state = bits(held), packed(optimizer.state_dict())

    def of(world):
        mine = params()
        own = dist.sharded(OPTIMIZERS[name](mine), world)
        train(own, mine, 4)
        kept = sum(array.size for each in own.optimizer.states for array in getattr(own.optimizer, each).values())
        return bits(mine), own.state_dict(), kept, own.lr, own.t

    results = together(size, of)
    assert all(result[0] == wanted for result in results)
    assert packed(results[0][1]) == state and all(result[1] == {} for result in results[1:])
    assert {result[3:] for result in results} == {(optimizer.lr, optimizer.t)}
    whole = sum(array.size for each in optimizer.states for array in getattr(optimizer, each).values())
    assert sum(result[2] for result in results) == whole
    assert all(result[2] <= -(-whole // size) + 4 * len(SIZES) for result in results)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 4), (3, 1), (4, 2)])
@pytest.mark.parametrize("name", ["adam", "sgd", "groups"])
def test_goes_on_with_another_number_of_ranks(name, before, after):
    wanted = bits(alone(name, 4)[0])

    def run(world, state, values, first, steps):
        mine = params()
        own = dist.sharded(OPTIMIZERS[name](mine), world)
        if state is not None:
            for p, value in zip(mine, values, strict=True):
                p.realize_cached_data()[...] = value
            own.load_state_dict(state)
        rates = [group["lr"] for group in own.param_groups]
        train(own, mine, steps, first)
        return own.state_dict(), [p.numpy() for p in mine], rates, bits(mine)

    def ranks(size, *given):
        if size == 1:
            return [run(dist.Alone(), *given)]
        return together(size, lambda world: run(world, *given))

    first = ranks(before, None, None, 0, 2)[0]
    second = ranks(after, first[0], first[1], 2, 2)
    held, optimizer = alone(name, 2)
    values = [p.numpy() for p in held]
    unbroken = run(dist.Alone(), optimizer.state_dict(), values, 2, 2)
    assert all(result[3] == unbroken[3] for result in second)
    assert len(wanted) == len(unbroken[3])


class Layerwise(optim.SGD):
    """A step of a length that the whole parameter decides."""

    def update(self, group, params, arrays, grads):
        for p, g in zip(arrays, grads, strict=True):
            p -= g * (group["lr"] / (abs(g).max().item() + 1))


REFUSED = {
    "not elementwise": (lambda p: Layerwise(p), ValueError, "sharded: Layerwise.update may look at whole parameters"),
    "L-BFGS": (lambda p: optim.LBFGS(p), ValueError, "sharded: LBFGS.step may look at whole parameters"),
    "no optimizer": (lambda p: p, TypeError, "sharded: expected an optimizer of needle.optim, got a list"),
    "not fresh": (lambda p: alone("adam")[1], ValueError, "sharded: the optimizer has made 4 steps"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_shared_out_is_refused(case):
    make, error, told = REFUSED[case]
    with pytest.raises(error, match=told):
        dist.sharded(make(params()), dist.Alone())


def test_a_state_that_does_not_fit_is_refused():
    _, optimizer = alone("adam")
    state = optimizer.state_dict()

    def of(world):
        own = dist.sharded(OPTIMIZERS["adam"](params()), world)
        wrong = {
            "groups": ({**state, "groups": []}, "groups of"),
            "lost": ({**state, "m": {}}, "no entry for parameter"),
            "shape": ({**state, "m": {**state["m"], "0": np.zeros((2, 2))}}, "has shape"),
            "other": ({"t": 1}, "no 'groups' in it"),
        }
        for broken, told in wrong.values():
            with pytest.raises(ValueError, match=told):
                own.load_state_dict(broken)
        own.load_state_dict(state)
        return own.t

    assert together(2, of) == [4, 4]
