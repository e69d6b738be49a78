"""Random programs, with views, writes in place, branches on Python state: captured equals eager, or it is refused."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what numbers come from)

import collections
import copy
import linecache
import os
import random
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import needle as ndl

N = 6  # of the program that is run: some are larger than what a plan computes in place, and than one loop without threads
LARGE = 96
CALLS = 14
#: What a program may not do if it is to be captured; each is rare, so that most programs have none.
REFUSED = [
    "{k} = {i} * {j}.sum().item()",
    "{k} = {i} * float(np.random.rand())",
    "state.n += 1",
    "state.log.append(len(state.log))",
    "{k} = {i} if ({j} > 0).all() else {i} * 2",
    "{k} = {i} * ndl.Tensor(np.full(({N}, {N}), 0.5, 'float32'), requires_grad=False)",
    "state.last = {i}",
    "{k} = {i} + next(state.counter)",
]
PLAIN = [
    "{k} = {i} + {j}",
    "{k} = {i} * {j}",
    "{k} = ({i} - {j}) * 0.5",
    "{k} = ({i} @ {j}) * 0.1",
    "{k} = {i}.tanh()",
    "{k} = ndl.ops.relu({i}) + {i}",
    "{k} = {i}.transpose()",
    "{k} = {i}[::-1]",
    "{k} = {i}.reshape((N * N,)).reshape((N, N))",
    "{k} = {i}[{r}].reshape((1, N)).broadcast_to((N, N))",
    "{k} = {i}.sum(0).reshape((1, N)).broadcast_to((N, N)) * 0.1",
    "{k} = {i}[index]",
    "{k} = ndl.ops.softmax({i})",
    "{k} = {i} * state.a",
    "{k} = {i} + state.numbers[{r} % 3]",
    "{k} = {i} * state.inner['deep'][0].b",
    "{k} = {i} * FACTOR",
    "{k} = scale({i})",
    "{k} = {i} * getattr(state, 'a')",
    "{k} = {i} + ndl.init.rand(N, N, requires_grad=False)",
    "{k} = {i} + ndl.ones(N, N, requires_grad=False)",
    "{k} = {i} * state.w0 + state.w1",
    "{k} = {i} * state.ws[{r} % 2]",
    "{k} = inner({i})",
    "{k} = {i} * len(state.numbers)",
    "{k} = -{i}[:, ::-1]",
    "{k} = {i}[::-1, ::-1] - {j}.transpose()",
    "{k} = ({i}.transpose() @ {j}[::-1]) * 0.1",
    "{k} = {i}[:, 1::2].sum(1).reshape((N, 1)).broadcast_to((N, N)) * 0.1",
    "{k} = ({i} ** 2) * 0.1",
    "{k} = {i} * {i}.transpose()[0].reshape((1, N)).broadcast_to((N, N))",
    "{k} = ndl.ops.tanh({i}[::2]).sum() * 0.01 + {j}",
]
WRITES = [
    "state.w0.realize_cached_data()[...] = {i}.realize_cached_data() * 0.5",
    "state.w1.realize_cached_data()[{r} % 3:3 + {r} % 3] += {i}.realize_cached_data()[1:4]",
    "state.w0.data = {i}.detach() * 0.9",
    "{i}.realize_cached_data()[::2] *= 0.5",
    "a = {i}.realize_cached_data(); a[1:] = a[:-1] * 0.5",
    "a = {i}.realize_cached_data(); a[...] = a.T * 1.0",
    "{i}.realize_cached_data()[{r}, {r}] = 0.25",
    "x.realize_cached_data()[{r}] = state.a",
    "state.ws[0].realize_cached_data()[:, {r}] = x.realize_cached_data()[{r}]",
]
RETURNS = [
    "return {i}.detach(), {j}.detach()",
    "return {{'a': {i}.detach(), 'b': [{j}.detach(), x], 'n': state.a}}",
    "return ({i}.detach() * 2, state.w0, {j}.detach().transpose())",
    "return [{i}.detach()] * 2 + [{j}.detach()[1:3], None, 'text']",
]


class Maker:
    """Writes a program."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.variables = ["x", "y"]
        self.refuses = self.rng.random() < 0.15

    def fill(self, text):
        k = f"v{self.rng.randrange(6)}"
        names = {
            "i": self.rng.choice(self.variables),
            "j": self.rng.choice(self.variables),
            "r": self.rng.randrange(6),
            "k": k,
            "N": N,
        }
        self.made = k if "{k}" in text else None
        return text.format(**names)

    def statements(self, count, depth):
        lines = []
        for _ in range(count):
            choice = self.rng.random()
            if depth and choice < 0.12:
                known = list(self.variables)
                body, self.variables = self.statements(2, depth - 1), known
                other, self.variables = self.statements(1, depth - 1), known
                test = self.rng.choice(
                    ["state.flag", "state.a > 1", "'key' in state.inner", "state.w0.requires_grad", "x.shape[0] > 2"]
                )
                lines += [f"if {test}:", *[f"    {line}" for line in body], "else:", *[f"    {line}" for line in other]]
            elif depth and choice < 0.18:
                known = list(self.variables)
                lines += ["for _ in range(state.count):", *[f"    {line}" for line in self.statements(2, depth - 1)]]
                self.variables = known
            elif choice < 0.32:
                lines += self.fill(self.rng.choice(WRITES)).split("; ")
            elif choice < 0.36 and self.refuses:
                lines.append(self.fill(self.rng.choice(REFUSED)))
                self.add()
            else:
                lines.append(self.fill(self.rng.choice(PLAIN)))
                self.add()
        return lines

    def add(self):
        if self.made and self.made not in self.variables:
            self.variables.append(self.made)

    def program(self):
        lines = self.statements(self.rng.randrange(3, 12), 2)
        if self.rng.random() < 0.5:
            loss = f"loss = (state.p * {self.rng.choice(self.variables)}.detach()).sum() + (state.p * state.p).sum()"
            lines += [loss, f"loss.backward(accumulate={self.rng.random() < 0.3})"]
            lines += self.rng.choice(
                [[], ["state.opt.step()"], ["ndl.optim.clip_grad_norm([state.p], 0.5)", "state.opt.step()"]]
            )
        if self.rng.random() < 0.3:
            lines.insert(0, "state.p.grad = None")
        lines.append(self.fill(self.rng.choice(RETURNS)))
        body = "\n".join(f"        {line}" for line in lines)
        return (
            "def make(state, base):\n    factor = base\n    def scale(z):\n        return z * factor\n"
            "    def inner(z, extra=[0.5]):\n        return (lambda q: q * extra[0] + state.a)(z)\n"
            "    def set_factor(value):\n        nonlocal factor\n        factor = value\n"
            f"    def f(x, y, index):\n{body}\n    return f, set_factor, inner\n"
        )


def tensor(seed, *shape):
    values = np.random.default_rng(seed).standard_normal(shape or (N, N)).astype("float32")
    return ndl.Tensor(values, requires_grad=False)


def state_of(seed):
    p = ndl.Tensor(tensor(seed).numpy())
    return SimpleNamespace(
        a=1.5, n=0, flag=True, count=2, numbers=[0.5, 1.5, 2.5], log=[], last=None, counter=iter(range(1000)), p=p,
        w0=tensor(seed + 1), w1=tensor(seed + 2), ws=[tensor(seed + 3), tensor(seed + 4)],
        inner={"deep": [SimpleNamespace(b=0.5)]}, opt=ndl.optim.SGD([p], lr=0.1, momentum=0.9),
    )  # fmt: skip


def change(world, rng):
    """Something changes between two calls; the same for both worlds, since they have generators of the same seed."""
    state = world.state
    kind = rng.randrange(18)
    number = rng.choice([0.5, 1, 1.0, True, 2.5, -0.0, 0.0])
    actions = [
        lambda: setattr(state, "a", number),
        lambda: setattr(state, "flag", not state.flag),
        lambda: setattr(state, "count", rng.randrange(3)),
        lambda: state.numbers.__setitem__(rng.randrange(len(state.numbers)), number),
        lambda: state.numbers.append(1.0) if len(state.numbers) < 5 else state.numbers.pop(),
        lambda: state.inner.__setitem__("key", 1) if "key" not in state.inner else state.inner.pop("key"),
        lambda: setattr(state.inner["deep"][0], "b", number),
        lambda: state.inner.__setitem__("deep", [SimpleNamespace(b=number)]),
        lambda: world.names.__setitem__("FACTOR", number),
        lambda: world.set_factor(number),
        lambda: setattr(world.inner, "__defaults__", ([number],)),
        lambda: setattr(state, "w0", tensor(rng.randrange(100))),
        lambda: setattr(state.w1, "data", tensor(rng.randrange(100)).transpose()),
        lambda: state.w1.realize_cached_data().__setitem__(0, float(number)),
        lambda: state.ws.reverse(),
        lambda: setattr(state.opt, "lr", 0.01 * rng.randrange(1, 5)),
        lambda: setattr(state.p, "grad", None),
        lambda: setattr(state.w1, "data", state.w0.detach()),
    ]
    actions[kind]()


def arguments(rng):
    """x, y and an index: compact, transposed, views of one array, or one tensor twice."""
    seed, kind = rng.randrange(1000), rng.random()
    x, y = tensor(seed), tensor(seed + 1)
    if kind < 0.1:
        x = tensor(seed).transpose()
    elif kind < 0.16:
        base = tensor(seed, N + 2, N).realize_cached_data()
        x, y = (ndl.Tensor(base[k : k + N], requires_grad=False) for k in (0, 2))
    elif kind < 0.22:
        y = x
    index = ndl.Tensor(np.random.default_rng(seed).integers(-N, N, N), requires_grad=False)
    return x, y, index


def bits(value):
    if isinstance(value, ndl.Tensor):
        return value.shape, str(value.dtype), value.numpy().tobytes()
    if isinstance(value, (list, tuple)):
        return [bits(each) for each in value]
    if isinstance(value, dict):
        return [(key, bits(each)) for key, each in value.items()]
    if isinstance(value, SimpleNamespace):
        return bits({key: each for key, each in vars(value).items() if key not in ("counter", "opt")})
    return repr(value)


def world_of(text, seed, wrap):
    names = {"ndl": ndl, "np": np, "N": N, "FACTOR": 1.5, "__name__": "fuzz"}
    filename = f"<fuzz {seed}>"
    linecache.cache[filename] = len(text), None, text.splitlines(True), filename
    exec(compile(text, filename, "exec"), names)
    state = state_of(seed)
    f, set_factor, inner = names["make"](state, 2.0)
    return SimpleNamespace(f=wrap(f), state=state, names=names, set_factor=set_factor, inner=inner)


def call(world, seed, i):
    rng = random.Random(seed * 1000 + i)
    if i and rng.random() < 0.3:
        change(world, rng)
    args = arguments(rng)
    np.random.seed(i)
    try:
        result = world.f(*args)
    except Exception as error:  # a program may be wrong: then both are
        result = type(error).__name__
    after = np.random.get_state()
    state = world.state
    grad = None if state.p.grad is None else bits(state.p.grad)
    return bits(result), bits(list(args)), bits(state), grad, bits(state.opt.lr), after[1].tobytes(), after[2]


def run(seed, without=()):
    """Run a program both ways; the captured function."""
    global N
    N = LARGE if seed % 8 == 7 else 6
    text = Maker(seed).program()
    eager = world_of(text, seed, lambda f: f)
    captured = world_of(text, seed, lambda f: ndl.capture(f, without=without))
    parts = ("result", "arguments", "state", "gradient", "learning rate", "random numbers", "random numbers")
    for i in range(CALLS):
        expected, got = call(eager, seed, i), call(captured, seed, i)
        for what, a, b in zip(parts, expected, got, strict=True):
            assert a == b, f"program {seed}, call {i}: {what} differs\n{text}"
    return captured.f


def run_many(seeds):
    """How many were replayed at least once, and why the others were not."""
    reasons = collections.Counter()
    replayed = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            f = run(seed)
            replayed += any(plan.replays for plan in f.plans)
            for why in f.refusals:
                reasons[why.split(": ", 1)[1].split(",")[0][:60]] += 1
    return replayed, reasons


@pytest.mark.parametrize("part", range(4))
def test_programs(part):
    replayed, _ = run_many(range(25 * part, 25 * part + 25))
    assert replayed >= 12


@pytest.mark.slow
def test_many_programs():
    count = int(os.environ.get("NEEDLE_FUZZ_PROGRAMS", "2000"))
    replayed, reasons = run_many(range(1000, 1000 + count))
    print(f"\n{replayed} of {count} replayed")
    for why, n in reasons.most_common():
        print(f"{n:6} {why}")
    assert replayed > count // 2


def test_programs_differ():
    texts = {Maker(seed).program() for seed in range(50)}
    assert len(texts) == 50 and copy.copy(texts)
