"""What happens beside training: callbacks that show, write, save and stop."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from tqdm import tqdm

import needle
from needle_nn.checkpoint import Checkpoints
from needle_nn.locking import Lock
from needle_nn.training.history import append_row, keep_rows, read_metrics, write_rows

__all__ = [
    "Average",
    "Callback",
    "EarlyStop",
    "MetricsFile",
    "Plateau",
    "ProfileSteps",
    "ProgressBar",
    "SaveCheckpoints",
    "TensorBoard",
    "read_metrics",
]


class Callback:
    """Told by `Trainer` what has happened; subclasses write the methods they need.

    `on_step_end` comes after a step of the optimizer, `on_epoch_end` after evaluation, with the epoch's metrics. In both the
    trainer's state is whole and may be saved. A callback with a state has `state_dict`, `load_state_dict` and a `name` of its own.
    `fitting` is a context around all of this: what it takes it gives back, however `fit` ends.

    Where several ranks train, a callback is told on rank 0 only, which shows and writes for all. One that the training depends on
    says `on_every_rank = True`; the logs are the same there. What all ranks do together, as `trainer.state_dict()`, needs it too.
    """

    on_every_rank = False

    @property
    def name(self) -> str:
        return type(self).__name__

    def fitting(self, trainer: Any) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def on_fit_begin(self, trainer: Any) -> None: ...
    def on_epoch_begin(self, trainer: Any) -> None: ...
    def on_step_end(self, trainer: Any) -> None: ...
    def on_epoch_end(self, trainer: Any, logs: dict[str, Any]) -> None: ...
    def on_fit_end(self, trainer: Any) -> None: ...
    def on_interrupt(self, trainer: Any) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class ProgressBar(Callback):
    """A bar for the epoch under way (on a terminal only), and a line for each that is done."""

    def __init__(self, file: TextIO | None = None, bar: bool | None = None) -> None:
        self.file, self.bar = file, bar
        self.shown: tqdm | None = None

    def on_epoch_begin(self, trainer: Any) -> None:
        left = (
            trainer.steps - trainer.step + trainer.batch
            if trainer.steps is not None and trainer.accumulate == 1
            else None
        )
        total = len(trainer.loader) if hasattr(trainer.loader, "__len__") else None
        total = min((n for n in (left, total) if n is not None), default=None)
        title = f"epoch {trainer.epoch + 1}" + (f"/{trainer.epochs}" if trainer.epochs else "")
        hidden = None if self.bar is None else not self.bar  # None: tqdm asks whether this is a terminal
        self.shown = tqdm(total=total, initial=trainer.batch, desc=title, leave=False, disable=hidden, file=sys.stderr)

    def on_step_end(self, trainer: Any) -> None:
        if self.shown is not None and not self.shown.disable:
            self.shown.set_postfix_str(_pairs(trainer.running), refresh=False)
            self.shown.update(trainer.batch - self.shown.n)

    def on_epoch_end(self, trainer: Any, logs: dict[str, Any]) -> None:
        self._close()
        numbers = {name: value for name, value in logs.items() if name not in ("epoch", "step", "lr", "seconds")}
        of = f"/{trainer.epochs}" if trainer.epochs else ""
        line = f"epoch {logs['epoch']}{of}  step {logs['step']}  {_pairs(numbers)}  {_duration(logs['seconds'])}"
        print(line, file=self.file or sys.stdout, flush=True)

    @contextlib.contextmanager
    def fitting(self, trainer: Any) -> Iterator[None]:
        try:
            yield
        finally:
            self._close()

    def on_fit_end(self, trainer: Any) -> None:
        self._close()

    def on_interrupt(self, trainer: Any) -> None:
        self._close()

    def _close(self) -> None:
        if self.shown is not None:
            self.shown.close()
        self.shown = None


class MetricsFile(Callback):
    """Append a JSON line to a file every `every` steps and after every epoch.

    {"kind": "step", "epoch": 1, "step": 50, "loss": 0.61, "lr": 0.01, "seconds": 2.3} has the loss of one batch, {"kind": "epoch",
    ...} the means of the epoch and, as `valid_...`, those of the evaluation. A run that goes on first drops the lines that came
    after its checkpoint; lines that cannot be read it moves to a file .damaged beside this one, and warns. While `fit` runs,
    the file is locked.
    """

    def __init__(self, path: str | os.PathLike, every: int = 10) -> None:
        self.path, self.every = Path(path), every
        self._file: BinaryIO | None = None

    @contextlib.contextmanager
    def fitting(self, trainer: Any) -> Iterator[None]:
        with Lock(self.path.with_name(f".{self.path.name}.lock"), self.path):
            try:
                yield
            finally:
                self._close()

    def on_fit_begin(self, trainer: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if trainer.step:
            keep_rows(self.path, lambda row: _happened(row, trainer))
        else:
            write_rows(self.path, [])
        self._file = self.path.open("ab", buffering=0)

    def on_step_end(self, trainer: Any) -> None:
        if trainer.step % self.every == 0:
            row = {"kind": "step", "epoch": trainer.epoch + 1, "step": trainer.step, "loss": trainer.last_loss}
            self._write(row | {"lr": trainer.lr, "seconds": trainer.seconds})

    def on_epoch_end(self, trainer: Any, logs: dict[str, Any]) -> None:
        self._write({"kind": "epoch", **logs})

    def on_fit_end(self, trainer: Any) -> None:
        self._close()

    def on_interrupt(self, trainer: Any) -> None:
        self._close()

    def _write(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            append_row(self._file, self.path, row)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None


class SaveCheckpoints(Callback):
    """Save the trainer's state every `every` steps, after every epoch, and when training is interrupted.

    Parameters
    ----------
    folder : where `Checkpoints` keeps the latest `keep`, or such an object; locked while `fit` runs
    every : steps between two; None: only after epochs
    extra : more to put into the file, under `run`: whatever it takes to build the model again
    go_on : what to tell the user after an interrupt
    """

    on_every_rank = True

    def __init__(
        self,
        folder: str | os.PathLike | Checkpoints,
        every: int | None = None,
        *,
        keep: int = 2,
        extra: Any = None,
        go_on: str | None = None,
    ) -> None:
        self.checkpoints = folder if isinstance(folder, Checkpoints) else Checkpoints(folder, keep)
        self.every, self.extra = every, extra
        place = os.fspath(self.checkpoints.folder)
        self.go_on = go_on or f"trainer.load_state_dict(Checkpoints({place!r}).load()), then fit, goes on from there"

    def fitting(self, trainer: Any) -> AbstractContextManager[Any]:
        return contextlib.nullcontext() if trainer.ranks.rank else self.checkpoints.lock

    def on_step_end(self, trainer: Any) -> None:
        if self.every and trainer.step % self.every == 0:
            self.save(trainer)

    def on_epoch_end(self, trainer: Any, logs: dict[str, Any]) -> None:
        self.save(trainer)

    def on_interrupt(self, trainer: Any) -> None:
        path = self.save(trainer)
        if path is not None:
            print(f"\ninterrupted; saved {path}\n{self.go_on}", file=sys.stderr, flush=True)

    def save(self, trainer: Any) -> Path | None:
        """Write a checkpoint; its path, None on other ranks than rank 0, which all call this."""
        state = trainer.state_dict()
        return None if trainer.ranks.rank else self.checkpoints.save(trainer.step, {**state, "run": self.extra})


class EarlyStop(Callback):
    """End the training when `optim.EarlyStopping` has seen a metric of the epochs get no better for too long.

    This and the two below have a state: in the list of callbacks they stand before `SaveCheckpoints`.
    """

    on_every_rank = True

    def __init__(self, stopping: Any, metric: str = "valid_loss") -> None:
        self.stopping, self.metric = stopping, metric

    def on_epoch_end(self, trainer: Any, logs: dict[str, Any]) -> None:
        if self.stopping.step(_metric(self, logs)):
            trainer.stop(f"{self.metric} got no better")

    def state_dict(self) -> dict[str, Any]:
        return self.stopping.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.stopping.load_state_dict(state)


class Plateau(Callback):
    """Show a metric of the epochs to `optim.ReduceOnPlateau`."""

    on_every_rank = True

    def __init__(self, schedule: Any, metric: str = "valid_loss") -> None:
        self.schedule, self.metric = schedule, metric

    def on_epoch_end(self, trainer: Any, logs: dict[str, Any]) -> None:
        self.schedule.step(_metric(self, logs))

    def state_dict(self) -> dict[str, Any]:
        return self.schedule.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.schedule.load_state_dict(state)


class Average(Callback):
    """Take every step's parameters into `optim.EMA`; `with ema: trainer.evaluate(loader)` measures the average."""

    on_every_rank = True

    def __init__(self, ema: Any) -> None:
        self.ema = ema

    def on_step_end(self, trainer: Any) -> None:
        self.ema.update()

    def state_dict(self) -> dict[str, Any]:
        return self.ema.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.ema.load_state_dict(state)


class ProfileSteps(Callback):
    """Profile some steps (`needle.profile`): write a trace for Perfetto, and show tables by op and by verb.

    Parameters
    ----------
    path : of the trace
    steps : how many steps
    skip : steps before them, in which caches fill; at least one
    quiet : write the trace only
    """

    def __init__(self, path: str | os.PathLike, steps: int = 20, skip: int = 3, quiet: bool = False) -> None:
        self.path, self.steps, self.skip, self.quiet = path, steps, max(skip, 1), quiet
        self.profile = needle.profile()
        self._seen, self._running = 0, contextlib.ExitStack()

    def on_step_end(self, trainer: Any) -> None:
        self._seen += 1
        if self._seen == self.skip:
            self._running.enter_context(self.profile)
            self._running.callback(self._show)
        elif self._seen == self.skip + self.steps:
            self._running.close()

    @contextlib.contextmanager
    def fitting(self, trainer: Any) -> Iterator[None]:
        with self._running:
            yield

    def _show(self) -> None:
        self.profile.save(self.path)
        if not self.quiet:
            tables = self.profile.table("op"), self.profile.table("verb", 10)
            count = min(self._seen - self.skip, self.steps)
            print("", *tables, f"trace of {count} steps: {os.fspath(self.path)}", sep="\n\n", flush=True)


class TensorBoard(Callback):
    """Write loss and metrics for TensorBoard; needs `pip install "needle-nn[tensorboard]"`."""

    def __init__(self, folder: str | os.PathLike, every: int = 10) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise ModuleNotFoundError('TensorBoard is not installed: pip install "needle-nn[tensorboard]"') from error
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self.every, self._writer = every, EventFileWriter(os.fspath(folder))

    def on_step_end(self, trainer: Any) -> None:
        if trainer.step % self.every == 0:
            self._write(trainer.step, {"step/loss": trainer.last_loss, "step/lr": trainer.lr})

    def on_epoch_end(self, trainer: Any, logs: dict[str, Any]) -> None:
        self._write(trainer.step, {f"epoch/{name}": value for name, value in logs.items() if isinstance(value, float)})
        self._writer.flush()

    def on_fit_end(self, trainer: Any) -> None:
        self._writer.close()

    def on_interrupt(self, trainer: Any) -> None:
        self._writer.close()

    def _write(self, step: int, values: dict[str, float]) -> None:
        rows = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=rows)))


def _metric(callback: Any, logs: dict[str, Any]) -> float:
    if callback.metric not in logs:
        raise ValueError(f"{callback.name}: no metric {callback.metric} among {', '.join(logs)}")
    return logs[callback.metric]


def _happened(row: dict[str, Any], trainer: Any) -> bool:
    return row["epoch"] <= trainer.epoch if row["kind"] == "epoch" else row["step"] <= trainer.step


def _pairs(values: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items())


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
