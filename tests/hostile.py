"""Hostile calls: public functions and methods of Needle with arguments that lie. No such call may end the process.

    python tests/hostile.py 1000000 --processes 2        a million calls, with a line of progress
    python tests/hostile.py --only SEED:NUMBER           one of them again, in this process

Calls run in processes of their own. One that dies or hangs is reported with the number that repeats the call, and another process
goes on behind it. Every call follows from its number. Some stretches run beside a thread that writes to the arrays in use, some
with little memory left.
"""

import _thread
import argparse
import collections
import faulthandler
import inspect
import itertools
import json
import mmap
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from hostile_table import INDEX, VALUES, make_tensor, right_call

import needle as ndl
import needle_ndarray as nd
from needle import nn, optim
from needle_ndarray import ndarray as internals
from needle_ndarray.backend import TABLES
from needle_ndarray.testing.hostile import SCALARS, SIZES, Twice, attempt, liars, lying

STRETCH = 500  # calls in one kind of surroundings
PATIENCE = 120  # seconds a call may take
ROOM = 1 << 29  # bytes a process may take beyond what it has at the start
#: These wait for something, write files, end the process by design, or change it for the calls that follow.
LEFT_OUT = {"set_num_threads", "set_cache_limit", "set_default_device", "set_default_dtype", "use_ops", "set_mode", "show_config",
            "compat", "set_torch_by_default",
            "__class__", "__init_subclass__", "__subclasshook__", "__getattribute__", "__setattr__", "__delattr__", "__dir__",
            "__reduce_ex__", "__sizeof__", "__new__", "register", "Backend", "Device", "summary"}  # fmt: skip
NUMBERS = [type(s) for s in SCALARS if isinstance(s, np.number) and not isinstance(s, np.timedelta64)]


# ---- What is called ------------------------------------------------------------------------------------------------


def targets() -> list[tuple[str, Callable[..., Any], str]]:
    """(name, function, what its first argument should be: "" anything, "array", "tensor", "verb", "layer" or "params")."""
    found: list[tuple[str, Callable[..., Any], str]] = []

    def add(where: str, names: list[str], owner: Any, first: str) -> None:
        for name in sorted(set(names) - LEFT_OUT):
            member = getattr(owner, name, None)
            if callable(member) and not inspect.ismodule(member):
                found.append((f"{where}.{name}", member, first))

    add("nd", [n for n in vars(nd) if not n.startswith("_")], nd, "")
    add("nd", [n for n in vars(nd) if not n.startswith("_")], nd, "array")
    add("ndarray", [n for n in vars(internals) if not n.startswith("_")], internals, "")
    add("NDArray", dir(nd.NDArray), nd.NDArray, "array")
    add("random", ["uniform", "normal", "bernoulli", "Generator"], nd.random, "")
    add("cpu", [n for n in dir(nd.cpu().backend) if not n.startswith("_") and n != "device"], nd.cpu().backend, "verb")
    add("ops", [n for n in vars(ndl.ops) if not n.startswith("_")], ndl.ops, "tensor")
    add("Tensor", dir(ndl.Tensor), ndl.Tensor, "tensor")
    add("TensorTuple", dir(ndl.TensorTuple), ndl.TensorTuple, "tuple")
    add("autograd", [n for n in vars(ndl.autograd) if not n.startswith("_")], ndl.autograd, "tensor")
    add("init", list(ndl.init.__all__), ndl.init, "")
    add(
        "nn",
        ["Linear", "Sequential", "ModuleList", "LayerNorm1d", "BatchNorm1d", "Dropout", "Conv", "LSTM", "Embedding"],
        nn,
        "layer",
    )
    add("optim", ["SGD", "Adam", "AdamW", "EMA", "clip_grad_norm", "clip_grad_value"], optim, "params")
    return found


def first_argument(rng: random.Random, kind: str) -> list[Any]:
    if not kind or rng.random() < 0.1:
        return []
    if kind == "array":
        return [rng.choice([VALUES, VALUES.T, INDEX, nd.ones(()), nd.ones((2, 0, 3)), lying(rng, [[1.0, 2.0]])])]
    if kind == "tensor":
        return [make_tensor(rng)]
    if kind == "tuple":
        return [ndl.ops.split(ndl.Tensor(np.ones((3, 2), "float32")), 0)]
    if kind == "verb":
        ops = [op for table in TABLES.values() for op in table.values()]
        return [rng.choice(ops)] if rng.random() < 0.5 else []
    if kind == "params":
        return [[make_tensor(rng) for _ in range(rng.randint(0, 3))]]
    return []


def arguments(rng: random.Random, kind: str) -> tuple[list[Any], dict[str, Any]]:
    given = first_argument(rng, kind)
    for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4])):
        chance = rng.random()
        if chance < 0.2:
            given.append(
                rng.choice([VALUES, INDEX, VALUES[::2, ::-1], INDEX[:40], nd.ones((8, 8)), 0, 1, (0, 1), True])
            )
        elif chance < 0.3:
            given.append(make_tensor(rng))
        else:
            given.append(liars(rng))
    words = ["axis", "axes", "out", "dtype", "device", "keepdims", "shape", "strides", "offset", "handle", "copy", "max_version",
             "k", "indices", "lr", "stream", "dl_device", "requires_grad", "accumulate", "out_grads"]  # fmt: skip
    return given, {rng.choice(words): liars(rng)} if rng.random() < 0.25 else {}


# ---- Right calls, with some arguments replaced --------------------------------------------------------------------------


def changed(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """Something that looks like the value: equal the first time one asks, of another type, or a lie."""
    if rng.random() < 0.1:
        return liars(rng)
    if isinstance(value, (list, tuple)) and depth < 2 and rng.random() < 0.7 and len(value):
        at = rng.randrange(len(value))
        return type(value)([changed(rng, item, depth + 1) if i == at else item for i, item in enumerate(value)])
    if isinstance(value, (list, tuple)):
        return rng.choice([iter(value), Twice(value, liars(rng)), itertools.cycle(value or [0]), value * 40, value[:0]])
    if isinstance(value, bool) or not isinstance(value, (int, float, nd.NDArray, ndl.Tensor)):
        return liars(rng)
    if isinstance(value, (int, float)):
        same = rng.choice(SCALARS) if abs(value) > 100 else rng.choice(NUMBERS)(value)
        return rng.choice([Twice(value, rng.choice(SIZES)), same, rng.choice(SIZES), float(value)])
    if isinstance(value, nd.NDArray):
        return rng.choice([lying(rng, value), value.T, value[:0], value[..., None], value.astype("int64"), value[::-1]])
    return rng.choice(
        [ndl.Tensor(lying(rng, value.numpy())), Wrong.make_const(value.realize_cached_data()), value * 1.0, value.T]
    )


class Wrong(ndl.Tensor):
    """A Tensor whose operators return something else."""

    __add__ = __radd__ = __mul__ = __neg__ = detach = reshape = lambda self, *_: 12345  # type: ignore[assignment]
    shape = property(lambda self: (3, 4))


def chosen_call(
    rng: random.Random, found: list[tuple[str, Callable[..., Any], str]]
) -> tuple[Any, list[Any], dict[str, Any]]:
    """Any function with anything, or one with what it takes but for an argument or two."""
    if rng.random() < 0.4:
        _, function, kind = rng.choice(found)
        return function, *arguments(rng, kind)
    function, given, words = right_call(rng)
    for _ in range(rng.choice([1, 1, 1, 2])):
        if words and rng.random() < 0.25:
            name = rng.choice(list(words))
            words[name] = changed(rng, words[name])
        elif given:
            at = rng.randrange(len(given))
            given[at] = changed(rng, given[at])
    return function, given, words


def is_huge(result: Any) -> bool:
    try:
        return (nd.NDArray.size.__get__(result) if isinstance(result, nd.NDArray) else result.size) > 10**7
    except Exception:  # it has no size, or lies about it
        return False


def call(seed: int, number: int, found: list[tuple[str, Callable[..., Any], str]]) -> str:
    """Make one call, and use what it returned; the name of the exception, or ok."""
    rng = random.Random(f"{seed}:{number}")
    try:
        function, given, words = chosen_call(rng, found)
    except Exception:  # of an argument that lies, or of no memory for one
        return "(not made)"
    made: list[Any] = []
    outcome = attempt(lambda: made.append(function(*given, **words)))
    for result in made:
        if is_huge(result):
            continue  # a broadcast view: to walk through it takes years
        if isinstance(result, nd.NDArray):
            attempt(result.sum)
            attempt(memoryview, result)
        elif isinstance(result, ndl.Tensor):
            attempt(lambda result=result: result.sum().backward())
        elif isinstance(result, nn.Module):
            attempt(result, make_tensor(rng))
        elif isinstance(result, optim.Optimizer):
            attempt(result.step)
    return outcome


# ---- A process that calls ----------------------------------------------------------------------------------------------


def write_meanwhile(stop: threading.Event) -> None:
    """Put indices out of bounds into INDEX, and take them out again."""
    host = np.asarray(INDEX)
    while not stop.is_set():
        host[10000:] = 2**40
        host[10000:] = 0
        time.sleep(0)


def memory_in_use() -> int:
    with open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith("VmSize")).split()[1]) << 10


def surroundings(number: int, room: int) -> threading.Event | None:
    """Every seventh stretch beside a writing thread, every ninth with hardly any memory left."""
    stretch = number // STRETCH
    used = memory_in_use()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used + (stretch * 7919 % 80 << 20) if stretch % 9 == 4 else room, hard))
    if stretch % 7 != 3:
        return None
    stop = threading.Event()
    _thread.start_new_thread(write_meanwhile, (stop,))  # Thread.start waits for ever where the thread finds no memory
    return stop


def work(seed: int, first: int, last: int, place: str) -> None:
    """Make calls first to last - 1; how far it got stands in the file `place`, for whoever finds the process dead."""
    faulthandler.enable()
    found = targets()
    outcomes: collections.Counter[str] = collections.Counter()
    with open(place, "r+b") as file:
        at = mmap.mmap(file.fileno(), 8)
    used = memory_in_use()
    stop = surroundings(first, used + ROOM)
    for number in range(first, last):
        if number % STRETCH == 0 and number != first:
            if stop is not None:
                stop.set()
            stop = attempt_surroundings(number, used + ROOM)
        at[:8] = number.to_bytes(8, "little")
        try:
            outcomes[call(seed, number, found)] += 1
        except SystemError as error:
            print(json.dumps({"complaint": f"{seed}:{number}: SystemError: {error}"}), flush=True)
        except MemoryError:
            outcomes["MemoryError"] += 1
    print(json.dumps({"outcomes": outcomes}), flush=True)
    os._exit(0)  # threads that write are left behind


def attempt_surroundings(number: int, room: int) -> threading.Event | None:
    try:
        return surroundings(number, room)
    except (MemoryError, RuntimeError, OSError):  # no memory left for a thread
        return None


# ---- Many of them --------------------------------------------------------------------------------------------------------


class Worker:
    """Makes its part of the calls, in one process after the other."""

    def __init__(self, seed: int, first: int, last: int, folder: str):
        self.seed, self.first, self.last = seed, first, last
        self.place = os.path.join(folder, f"at-{first}")
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []
        self.at, self.moved = first, time.monotonic()
        self.start(first)

    def start(self, first: int) -> None:
        self.begun, self.at = first, first
        with open(self.place, "wb") as file:
            file.write(first.to_bytes(8, "little"))
        command = [sys.executable, __file__, "--work", f"{self.seed},{first},{self.last},{self.place}"]
        self.output = open(f"{self.place}.txt", "w+")  # noqa: SIM115  closed by `poll`
        environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONHASHSEED": "0"}
        self.process = subprocess.Popen(
            command, stdout=self.output, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.moved = time.monotonic()

    def poll(self) -> bool:
        """Look after the process; whether there is work left."""
        with open(self.place, "rb") as file:
            at = int.from_bytes(file.read(8), "little")
        if at != self.at:
            self.at, self.moved = at, time.monotonic()
        hangs = time.monotonic() - self.moved > PATIENCE
        if hangs:
            self.process.kill()
        code = self.process.wait() if hangs else self.process.poll()
        if code is None:
            return True
        self.output.seek(0)
        text = self.output.read()
        self.output.close()
        for line in text.splitlines():
            if line.startswith('{"outcomes"'):
                self.outcomes.update(json.loads(line)["outcomes"])
            elif line.startswith('{"complaint"'):
                self.failures.append(json.loads(line)["complaint"])
                print(f"\n{self.failures[-1]}", flush=True)
        if code == 0:
            self.at = self.last
            return False
        self.failures.append(
            f"{self.seed}:{self.at}: {'hangs' if hangs else f'died with {code}'}: {text.strip()[-1500:]}"
        )
        print(f"\n{self.failures[-1]}", flush=True)
        self.outcomes["(process died)"] += self.at - self.begun
        if self.at + 1 >= self.last or len(self.failures) > 20:
            return False
        self.start(self.at + 1)
        return True


def run(calls: int, processes: int, seed: int, quiet: bool = False) -> tuple[collections.Counter[str], list[str]]:
    """Outcomes, counted, and failures: what the processes were doing when they died, hung or complained."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        cuts = [calls * i // processes for i in range(processes + 1)]
        workers = [Worker(seed, a, b, folder) for a, b in itertools.pairwise(cuts)]
        left = list(workers)
        while left:
            time.sleep(0.2)
            left = [worker for worker in left if worker.poll()]
            done = sum(worker.at - cut for worker, cut in zip(workers, cuts, strict=False))
            failed = sum(len(worker.failures) for worker in workers)
            if not quiet:
                rate = done / (time.monotonic() - begun)
                print(f"\r{done:,} of {calls:,} calls, {rate:,.0f} a second, {failed} failures ", end="", flush=True)
    if not quiet:
        print()
    return sum((worker.outcomes for worker in workers), collections.Counter()), [f for w in workers for f in w.failures]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calls", nargs="?", type=int, default=20000)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="SEED:NUMBER of one call")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        seed, first, last, place = options.work.split(",")
        work(int(seed), int(first), int(last), place)
    if options.only:
        seed, number = map(int, options.only.split(":"))
        faulthandler.enable()
        found = targets()
        function, given, words = chosen_call(random.Random(f"{seed}:{number}"), found)
        print(
            function, [type(value) for value in given], {name: type(value) for name, value in words.items()}, flush=True
        )
        print(call(seed, number, found))
        return 0
    outcomes, failures = run(options.calls, max(options.processes, 1), options.seed)
    print(", ".join(f"{name} {count:,}" for name, count in outcomes.most_common()))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
