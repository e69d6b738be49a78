"""CUDA graphs: calls of a plan, captured from a stream once and launched as one.

A graph's addresses and numbers stay. So whatever a verb may decide by something other than its arrays' layouts and addresses is
taken away first: numbers that only a buffer remembers are written to its memory, known bounds of integers are not looked at.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from needle_ndarray import NDArray

ALIGNED = 512  # bytes, as cupy's pool
LEAST = 2  # launches of a graph


class Scratch:
    """Memory that the graphs of a plan need for a while within a call: each call begins at the start of the same block again."""

    def __init__(self, memory: Any):
        self.memory, self.needed, self.taken = memory, 0, 0
        self.block: Any = None
        self.stream: Any = None  # that its graphs are captured from

    def begin(self) -> None:
        """The next call: nothing of the one before is in use."""
        self.taken = 0

    def count(self, nbytes: int) -> None:
        self.taken += -(-nbytes // ALIGNED) * ALIGNED
        self.needed = max(self.needed, self.taken)

    def reserve(self) -> Any:
        """The block; whoever launches a graph that works in it has to hold it."""
        if self.block is None or self.block[1] < self.needed:
            self.block = (self.memory.take(self.needed) if self.needed else None, self.needed)
        return self.block[0]

    def take(self, nbytes: int) -> Any:
        start, before = self.taken, self.needed
        self.count(nbytes)
        if self.needed > before or self.block[0] is None:
            raise RuntimeError(f"a graph needs {self.taken:,} bytes of scratch memory, {before:,} without it")
        return self.block[0] + start


class Segment:
    """Calls of a plan that are run one after another, until their arrays have been in the same place twice in a row: then they are
    captured. `run` is what the backend interface asks of a graph.

    Calls that a graph cannot hold (those of cuBLAS, which cupy does not capture) are made between two graphs.
    """

    def __init__(self, backend: Any, calls: list, shared: dict, moving: list[NDArray], written: list[NDArray]):
        self.backend, self.calls, self.moving = backend, calls, moving
        self.scratch = shared.setdefault(f"scratch {backend.name}", Scratch(backend.memory))
        self.arrays = one_of_each(a for _, args in calls for a in arrays_in(args))
        self.written = one_of_each(written)
        self.seen: list[int] | None = None  # addresses of the last run
        self.alone: set[int] = set()  # calls that cannot be captured
        self.launches: list[int] = []  # kernels of each call
        self.steps: list[Any] | None = None  # graphs, and calls between them
        self.held: Any = None  # scratch of the graphs
        self.fails = False

    def run(self) -> bool:
        launcher = self.backend.launcher
        if self.fails or launcher.waits:
            return False
        now = [a._handle.ptr() for a in self.moving]
        if now != self.seen:
            self.steps = self.held = None
            self._run_and_learn()
            self.seen = now
            return True
        if self.steps is None and not self._capture():
            return False
        with launcher.device:
            for step in self.steps or ():
                if isinstance(step, int):
                    self._call(step)
                else:
                    launcher.recent.append(f"a graph of {len(self.calls)} calls")
                    step.launch()
        for a in self.written:
            a._handle.bounds = None
        return True

    def _call(self, i: int) -> None:
        verb, args = self.calls[i]
        getattr(self.backend, verb)(*args)

    def _run_and_learn(self) -> None:
        """Run the calls one by one: their kernels are compiled then, and how much scratch memory they take is known."""
        launcher, memory = self.backend.launcher, self.backend.memory
        self.alone, self.launches = set(), []
        with self._forgotten():
            for i in range(len(self.calls)):
                self.scratch.begin()
                launcher.foreign, before = False, launcher.count
                memory.watch.counts = self.scratch
                try:
                    self._call(i)
                finally:
                    memory.watch.counts = None
                self.launches.append(launcher.count - before)
                if launcher.foreign:
                    self.alone.add(i)

    def _capture(self) -> bool:
        """Make the graphs; False where CUDA refuses, and then for good."""
        try:
            with self.backend.launcher.device, self._forgotten():
                self.held = self.scratch.reserve()
                self.steps = [step for first, last in self._runs() for step in self._graph(first, last)]
        except Exception as error:
            self.fails, self.steps, self.held = True, None, None
            warnings.warn(
                f"{self.backend.name}: {len(self.calls)} calls of a captured function run without a CUDA graph: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
        return not self.fails

    def _runs(self) -> Iterator[tuple[int, int]]:
        """From one call that cannot be captured to the next; these by themselves."""
        start = 0
        for i in sorted(self.alone):
            yield from ((start, i), (i, i + 1))
            start = i + 1
        yield start, len(self.calls)

    def _graph(self, first: int, last: int) -> list[Any]:
        """A graph of these calls, or where that is no gain the calls."""
        if first in self.alone or sum(self.launches[first:last]) < LEAST:
            return list(range(first, last))
        cuda, memory = self.backend.cupy.cuda, self.backend.memory
        if self.scratch.stream is None:
            self.scratch.stream = cuda.Stream(non_blocking=True)  # the legacy one cannot be captured
        stream = self.scratch.stream
        with stream:
            stream.begin_capture(cuda.runtime.streamCaptureModeThreadLocal)
            memory.watch.lends = self.scratch
            try:
                for i in range(first, last):
                    self.scratch.begin()
                    self._call(i)
            finally:
                memory.watch.lends = None
                graph = stream.end_capture()
        return [graph]

    @contextmanager
    def _forgotten(self) -> Iterator[None]:
        """With all numbers in memory, and no bounds known; what is known of arrays that are only read comes back."""
        handles = [a._handle for a in self.arrays]
        known = [handle.bounds for handle in handles]
        for handle in handles:
            handle.pointer()
            handle.bounds = None
        try:
            yield
        finally:
            own = {id(a._handle) for a in self.written}
            for handle, bounds in zip(handles, known, strict=True):
                if id(handle) not in own:
                    handle.bounds = bounds


def arrays_in(args: Any) -> Iterator[NDArray]:
    for arg in args:
        if isinstance(arg, NDArray):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from arrays_in(arg)


def one_of_each(arrays: Any) -> list[NDArray]:
    """An array on each of their buffers. The buffers are not held: a plan looks at how many do."""
    return list({id(a._handle): a for a in arrays}.values())


class Graphs:
    """Hook of CUDABackend: captured plans run as CUDA graphs, unless NEEDLE_CUDA_GRAPHS is 0."""

    launcher: Any
    has_graphs = os.environ.get("NEEDLE_CUDA_GRAPHS", "1") != "0"

    def graph(self, calls: list, shared: dict, moving: list[NDArray], written: list[NDArray]) -> Segment | None:
        return Segment(self, calls, shared, moving, written) if self.has_graphs and self.launcher else None
