"""Runs hostile snippets, one line of JSON per outcome; test_hostile.py starts it, and again behind a snippet that kills it."""

import json
import random
import sys
import threading

import numpy as np

import needle_ndarray as nd
from needle_ndarray import backend as tables
from needle_ndarray.buffer import Buffer
from needle_ndarray.testing.calls import CALLS, call
from needle_ndarray.testing.hostile import SCALARS, HostLie, Twice, liars


def array(device="cpu"):
    return nd.array(np.arange(12).reshape(3, 4), "float32", device)


def junk():
    """Values of every wrong type, and some right ones."""
    a = array()
    return [
        None, "a", "", object(), 1.5, float("nan"), -1, 0, 3, 2**70, -(2**70), True, [], [[1], [2, 3]], {}, b"x", 1j,
        (0, 0), (-1, 2), (2**40, 2**40), ("a",), [None], slice(None), Ellipsis, int, len, np.array([None, 1]), np.float32(2),
        np.array(["x"]), np.zeros((1,) * 40), a, a.T, a[:0], nd.array(True, "bool"), nd.arange(3), np.arange(4.0),
        nd.NDArray, nd.NDArray.__new__(nd.NDArray), nd.cuda(), nd.cpu(), "cpu", "float32", nd.array([1], device="cpu_numpy"),
    ]  # fmt: skip


complaints = []  # errors of the interpreter's own: something C code got wrong


def attempt(call, *args, **kwargs):
    """Any ordinary exception will do; what must not happen is a crash."""
    try:
        return call(*args, **kwargs)
    except SystemError as error:
        complaints.append(f"SystemError: {error}")
    except Exception:
        pass
    return None


def check_scalars():
    """Every operator and function with every NumPy scalar type: what the Python number gives, or TypeError."""
    wrong = []
    calls = [
        *("a + s", "s + a", "a - s", "s - a", "a * s", "s * a", "a / s", "s / a", "a // s", "a % s", "a ** s", "a == s", "a < s"),
        *("a & s", "nd.maximum(a, s)", "nd.where(a > 0, a, s)", "nd.where(a > 0, s, s)", "nd.where(s, a, a)", "a.clip(s, s)"),
        *("nd.full((2,), s)", "nd.pad(a, ((1, 1),), s)", "nd.add(a, s, out=a.copy())", "a.where(a > 0, s)", "nd.array(s)"),
        *("b.fill(s)", "b.__setitem__(0, s)", "b.__setitem__([0], s)", "b.__iadd__(s)", "nd.sgd_step([b], [b], lr=s)"),
    ]  # fmt: skip
    for scalar in SCALARS:
        number = isinstance(scalar, (np.number, np.bool_)) and not isinstance(
            scalar, (np.complexfloating, np.timedelta64)
        )
        plain = (scalar.item() if scalar.dtype.char != "g" else float(scalar)) if number else scalar
        for dtype in nd.dtypes.DTYPES:
            for text in calls:
                got, expected = (outcome_of(text, dtype, s) for s in (scalar, plain))
                if got != expected and "nd.array" not in text and "full" not in text:
                    wrong.append(f"{text} for {dtype} and {scalar!r}: {got}, expected {expected}")
    assert not wrong, "\n".join(wrong[:20])


def outcome_of(text, dtype, s):
    """What an expression gives, in all that can be compared, or the name of its exception."""
    a, b = nd.array([1, 1], dtype), nd.array([1, 1], dtype)
    try:
        made = eval(text, {"a": a, "b": b, "s": s, "nd": nd})
    except Exception as error:
        return type(error).__name__
    return (str(made.dtype), made.tolist(), b.tolist()) if isinstance(made, nd.NDArray) else b.tolist()


def sweep_function(call, seed=0, rounds=400):
    """Call with nothing, with each piece of junk, and with random handfuls of it, some by keyword."""
    rng = random.Random(seed)
    things = junk() + [liars(rng) for _ in range(40)]
    attempt(call)
    for thing in things:
        attempt(call, thing)
    keywords = [
        "axis",
        "out",
        "dtype",
        "device",
        "keepdims",
        "shape",
        "strides",
        "offset",
        "handle",
        "copy",
        "min",
        "max",
        "k",
    ]
    for _ in range(rounds):
        args = rng.choices(things, k=rng.randint(1, 4))
        extra = {rng.choice(keywords): rng.choice(things)} if rng.random() < 0.3 else {}
        attempt(call, *args, **extra)


def sweep_methods(make, rounds=150):
    """Every attribute of the array: read it, and call it with junk if it can be called."""
    for name in sorted(set(dir(nd.NDArray)) | set(tables.UNARY)):
        if name in ("__class__", "__init_subclass__", "__subclasshook__", "__new__", "__getattribute__", "__dir__"):
            continue
        member = attempt(getattr, make(), name)
        if callable(member):
            sweep_function(lambda *args, name=name, **kwargs: getattr(make(), name)(*args, **kwargs), name, rounds)


def sweep_verbs(device):
    """The backend's verbs with arrays of every wrong shape and dtype: they guard the memory themselves."""
    rng = random.Random(1)
    backend = nd.device(device).backend
    ops = [op for table in tables.TABLES.values() for op in table.values()]
    shapes = [(), (3,), (4,), (0,), (3, 4), (4, 3), (2, 3, 4), (3, 0), (1, 1)]
    other = junk()

    def pick():
        made = nd.ones(
            rng.choice(shapes), rng.choice(["bool", "uint8", "int32", "int64", "float32", "float64"]), device
        )
        return rng.choice([made, made.T, made[..., None].broadcast_to((*made.shape, 2)), made, rng.choice(other)])

    for verb in ("fill", "copy", "unary", "binary", "where", "reduce", "arg_reduce", "scan", "matmul", "take", "scatter", "random",
                 "rows", "from_host", "to_host"):  # fmt: skip
        own = list(tables.TABLES.get(verb, {}).values())
        for _ in range(400):
            args = [pick() for _ in range(rng.choice([1, 2, 2, 3, 3, 4]))]
            if own:
                args.insert(0, rng.choice(rng.choice([own, ops])))
            if verb == "reduce" and len(args) > 3:
                args[3] = rng.choice([(), (0,), (1,), (0, 1), (5,), (0, 0), (-1,), ("a",), None])
            if verb in ("arg_reduce", "scan") and len(args) > 3:
                args[3] = rng.choice([0, 1, 2, -1, 31, 32, 2**40])
            if verb == "random":
                args[1:] = [pick(), rng.choice([0, -1, 2**64]), rng.choice([0, 5, 2**65])]
            attempt(getattr(backend, verb), *args[: 4 if own else None])
    sweep_network(backend, device, pick, rng)
    sweep_recurrent(backend, device, pick, rng)


def sometimes_another_op(backend, name, rng, args):
    """The call of an op; one time in eight with an op of any table, an op made by hand or None in its place."""
    verb, arguments = CALLS[name]
    given = list(arguments(*args))
    if rng.random() < 0.125:
        table = rng.choice(list(tables.TABLES.values()))
        given[0] = rng.choice([*table.values(), nd.Op("mine", rng.randrange(9), "float", "same"), None])
    getattr(backend, verb)(*given)


#: What each recurrent verb takes, in the words of needle_ndarray.testing.recurrent; "-" is an op.
RECURRENT = {
    "lstm_cell": "B 4n,B 4n,4n,B n,B n,B n,B 4n", "lstm_cell_grad": "B n,B n,B n,B 4n,B n,B n,B 4n,B n",
    "gru_cell": "B 3n,B 3n,3n,B n,B n,B 4n", "gru_cell_grad": "B n,B n,B n,B 4n,B 3n,B 3n,B n",
    "lstm": "T B 4n,n 4n,4n,T+ B n,T+ B n,T B 4n", "lstm_grad": "T B n,n 4n,T+ B n,T B 4n,T B 4n,B n,B n",
    "gru": "T B 3n,n 3n,3n,T+ B n,T B 4n", "gru_grad": "T B n,n 3n,T+ B n,T B 4n,T B 3n,T B 3n,B n",
    "rnn": "-,T B n,n n,n,T+ B n", "rnn_grad": "-,T B n,n n,T+ B n,T B n,B n",
}  # fmt: skip


def sweep_recurrent(backend, device, pick, rng):
    """Sizes that differ by one, other dtypes, views and None among arguments that fit."""
    for verb, takes in RECURRENT.items():
        for _ in range(400):
            t, b, n = rng.choice([0, 1, 3]), rng.choice([0, 1, 5]), rng.choice([0, 1, 4])
            sizes = {"T": t, "T+": t + 1, "B": b, "n": n, "3n": 3 * n, "4n": 4 * n}
            dtype = rng.choice(["float32", "float64"])
            args = []
            for words in takes.split(","):
                if words == "-":
                    args.append(rng.choice(list(tables.UNARY.values())[:8] + [tables.UNARY["tanh"]] * 8))
                    continue
                shape = [sizes[word] + (rng.random() < 0.03) for word in words.split()]
                made = nd.ones(shape, dtype, device)
                args.append(made[..., None].broadcast_to((*shape, 2))[..., 0] if rng.random() < 0.2 else made)
            for _ in range(rng.choice([0, 0, 1, 1, 2])):
                args[rng.randrange(len(args))] = rng.choice([pick(), None])
            attempt(sometimes_another_op, backend, verb, rng, args)


#: What each verb of the networks takes: arrays "a", vectors "v", labels "i", a mask "m", numbers "e" and "c".
NETWORK = {
    "layer_norm": "avvea", "layer_norm_grad": "aaveavv", "batch_norm": "avveavv", "batch_norm_grad": "aavvveavv",
    "softmax_grad": "aaa", "log_softmax_grad": "aaa", "logsumexp_grad": "vava",
    "cross_entropy": "aiv", "cross_entropy_grad": "vaia", "attention": "aaamcea", "attention_grad": "aaaamceaaa",
}  # fmt: skip


def sweep_network(backend, device, pick, rng):
    """Mostly right arguments, so that some calls get through, and a wrong one or two among them."""
    for verb, takes in NETWORK.items():
        for _ in range(400):
            shape = rng.choice([(3, 4), (2, 3, 4), (4, 4), (0, 4), (2, 3, 3), (4, 1)])
            dtype = rng.choice(["float32", "float64"])
            kinds = {
                "a": lambda shape=shape, dtype=dtype: nd.ones(shape, dtype, device),
                "v": lambda shape=shape, dtype=dtype, verb=verb: nd.ones(
                    shape[:-1] if verb.startswith(("cross", "logsumexp")) else shape[-1:], dtype, device
                ),
                "i": lambda shape=shape: nd.full(
                    shape[:-1], rng.choice([0, 3, -1, 4, 2**60, -(2**62)]), "int64", device
                ),
                "m": lambda shape=shape: rng.choice([None, nd.ones((*shape[:-1], shape[-2]), "bool", device)]),
                "e": lambda: rng.choice([1e-5, 0.0, -1.0, float("nan"), float("inf"), "x", None]),
                "c": lambda: rng.choice([True, False, None, 2]),
            }
            args = [kinds[kind]() for kind in takes]
            for _ in range(rng.choice([0, 0, 1, 1, 2])):
                args[rng.randrange(len(args))] = pick()
            attempt(sometimes_another_op, backend, verb, rng, args)


def sweep_convolutions(device, rounds=1500):
    """The verbs of convolution and pooling, with everything right but for one or two arguments."""
    rng = random.Random(2)
    backend = nd.device(device).backend
    numbers = [-(2**63), -1, 0, 1, 2, 7, 2**31 - 1, 2**31, 2**62, 2**63 - 1, 2**63, 2**70, 1.5, None, "a"]
    other = junk()

    def ones(shape, dtype="float32"):
        return nd.ones(shape, dtype, device)

    def wrong():
        shape = [rng.choice([0, 1, 2, 3, 5, 8]) for _ in range(rng.choice([4] * 9 + [0, 3, 5]))]
        huge = attempt(ones((1, 1, 1, 1)).broadcast_to, rng.choices([0, 1, 1, 3, 2**20, 2**40], k=4))
        pair = (rng.choice(numbers), rng.choice(numbers))
        arrays = [
            ones(shape),
            ones(shape),
            ones(shape, rng.choice(["float64", "int32", "uint8", "bool"])),
            ones(shape).T,
            huge,
        ]
        return rng.choice(
            [*arrays, pair, pair, (pair, (0, 0)), ((1, 1), pair), (1,), rng.choice(other), rng.choice(numbers)]
        )

    for verb in ("conv2d", "conv2d_input_grad", "conv2d_weight_grad", "max_pool2d", "max_pool2d_grad", "avg_pool2d",
                 "avg_pool2d_grad"):  # fmt: skip
        for _ in range(rounds):
            n, h, w, groups, kh, kw, sh, sw, dh, dw = (rng.randint(1, 3) for _ in range(10))
            (top, bottom), (left, right) = around = ((rng.randint(0, 9), 6), (6, rng.randint(0, 9)))
            c, f = groups * rng.randint(1, 3), groups * rng.randint(1, 3)
            c, f, groups, dh, dw = (c, f, groups, dh, dw) if "conv" in verb else (c, c, 1, 1, 1)
            oh, ow = (h + top + bottom - (kh - 1) * dh - 1) // sh + 1, (w + left + right - (kw - 1) * dw - 1) // sw + 1
            x, weight, y = ones((n, h, w, c)), ones((kh, kw, c // groups, f)), ones((n, oh, ow, f))
            conv, pool = ((sh, sw), around, (dh, dw), groups), ((kh, kw), (sh, sw), around)
            args = {
                "conv2d": [x, weight, *conv, y],
                "conv2d_input_grad": [y, weight, *conv, x],
                "conv2d_weight_grad": [x, y, *conv, weight],
                "max_pool2d": [x, *pool, y],
                "max_pool2d_grad": [y, x, *pool, x.copy()],
                "avg_pool2d": [x, *pool, y],
                "avg_pool2d_grad": [y, *pool, x],
            }[verb]
            call(backend, verb, *args)
            for _ in range(rng.choice([1, 1, 1, 2])):
                args[rng.randrange(len(args))] = wrong()
            attempt(sometimes_another_op, backend, verb, rng, args)


def run(code):
    """What became of a snippet: ok, or the exception."""
    complaints.clear()
    try:
        exec(code, {"nd": nd, "np": np, "array": array, "Buffer": Buffer, "junk": junk, "attempt": attempt,
                    "sweep_function": sweep_function, "sweep_methods": sweep_methods, "sweep_verbs": sweep_verbs,
                    "sweep_convolutions": sweep_convolutions, "check_scalars": check_scalars, "Twice": Twice, "HostLie": HostLie,
                    "threading": threading, "NDArray": nd.NDArray, "tables": tables})  # fmt: skip
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return complaints[0] if complaints else "ok"


if __name__ == "__main__":
    for name, code in json.load(sys.stdin):
        print(json.dumps([name, None]), flush=True)
        print(json.dumps([name, run(code)]), flush=True)
