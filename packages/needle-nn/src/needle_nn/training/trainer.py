"""The training loop.

Everything here can be written by hand in ten lines, and sometimes should be:

    for x, y in loader:
        optimizer.reset_grad()
        loss(model(x), y).backward()
        optimizer.step()

What `Trainer` adds: metrics, evaluation, accumulated gradients, clipping, schedules, callbacks, and a `state_dict` from which a run
goes on with the same bits, wherever between two steps it was cut.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import needle
import needle.random
from needle import Tensor, no_grad
from needle_ndarray.extension import depends, repeat
from needle_nn.checkpoint import random_state, set_random_state
from needle_nn.data.sources import peek
from needle_nn.distributed.communicator import Communicator
from needle_nn.distributed.parallel import parts_of
from needle_nn.optim import clip_grad_norm
from needle_nn.training.arguments import check_options, check_parts, form_of
from needle_nn.training.callbacks import Callback
from needle_nn.training.history import History
from needle_nn.training.interrupts import asking_first
from needle_nn.training.metrics import Mean, count_targets
from needle_nn.training.parts import Figures, Parts, Statistics
from needle_nn.training.ranks import Ranks


class Trainer:
    """Train a model.

    Parameters
    ----------
    model : called with the first field of a batch
    optimizer : of its parameters
    loss : loss(output, target) -> a Tensor with one number, the mean over the targets, or their sum with `reduction = "sum"`
    metrics : {name: function of output and target}, averaged with the number of targets as weights
    callbacks : told in this order; see `Callback`
    schedule : its step() is called after every step of the optimizer, or after every epoch with schedule_every="epoch"
    accumulate : batches that make one step, with the gradient of the one large batch they are parts of. With more than one, what
        is computed is a function of the parts, whoever computes which: gradients are summed by a fixed tree, random numbers are a
        function of (seed, step, part)
    clip_norm : longest gradient that is let through
    keep : {name: object with state_dict and load_state_dict}, more to put into checkpoints: an average of weights, a carried state
    capture : record a step and replay it (`needle.capture`): the same bits, sooner; a model that cannot be captured stays eager
    world : the ranks that share the parts of a step (`needle.distributed.init()`); each has its own Trainer, model and loader, and
        ends with the bits that one process has. Callbacks are told on rank 0 alone, unless they are `on_every_rank`
    overlap : with `world`, send gradients while backward goes on: the same bits, sooner where messages take long and cores are free

    `epoch` counts finished epochs, `step` steps of the optimizer, `batch` batches of the epoch under way. `history` has the
    metrics of the epochs that this Trainer has seen, and shows their curves in a notebook.

    Means over several batches, gradients too, have the number of targets as weights: the elements of `target`, or what the loss or
    the metric answers to `count_targets(target)` where it leaves some of them out (`nn.SoftmaxLoss(ignore_index=0)`).
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loss: Callable[[Any, Any], Any],
        *,
        metrics: Mapping[str, Callable[[Any, Any], float]] | None = None,
        callbacks: Sequence[Callback] = (),
        schedule: Any = None,
        schedule_every: str = "step",
        accumulate: int = 1,
        clip_norm: float | None = None,
        keep: Mapping[str, Any] | None = None,
        capture: bool = False,
        world: Communicator | None = None,
        overlap: bool = False,
    ) -> None:
        check_parts(model, optimizer, loss)
        check_options(metrics, callbacks, schedule_every, accumulate)
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self.history = History()
        self.metrics, self.callbacks = dict(metrics or {}), list(callbacks)
        self.schedule, self.schedule_every = schedule, schedule_every
        self.accumulate, self.clip_norm = accumulate, clip_norm
        self.keep = dict(keep or {})
        if overlap and capture:
            raise ValueError(
                "Trainer: overlap and capture: a captured step has no hooks by which gradients leave early"
            )
        self.ranks = Ranks(world, accumulate, model)
        self.overlap = overlap
        if self.ranks.rank:
            self.callbacks = [callback for callback in self.callbacks if callback.on_every_rank]
        self.parts: Parts | None = None  # of the steps of the present call of `fit`, where they have several
        self.epoch = self.step = self.batch = 0
        self.epochs: int | None = None  # asked for
        self.steps: int | None = None
        self.loader: Any = None
        self.stopped: str | None = None  # why fit came to an end before its time
        self.last_loss = math.nan
        self._means = self._new_means()
        self._group = Mean()  # the loss of the batches that make the step under way
        self._seconds: float = 0.0
        self._started: float | None = None  # when the present call of `fit` began
        self._loader_state: Any = None  # waits for the loader that `fit` is given
        self._seed: int | None = (
            None  # of the run's random numbers, where steps have parts and `needle.random` has no seed
        )
        self._weight = 0.0  # targets of the batch under way
        self._statistics: Statistics = []  # of its running statistics, where they follow at the end of the step
        self._run: Callable = needle.capture(self._compute) if capture else self._compute
        one_process = not hasattr(optimizer, "gathered_state")  # its step is no exchange between ranks
        self._apply: Callable = needle.capture(self._change) if capture and one_process else self._change

    # ---- Training -------------------------------------------------------------------------------------

    def fit(
        self, loader: Iterable, epochs: int | None = None, *, steps: int | None = None, valid: Iterable | None = None
    ) -> dict:
        """Train until `epochs` epochs or `steps` steps are done in all, from where the state stands; the last epoch's metrics.

        Ctrl-C lets the step be finished, tells the callbacks, and then raises KeyboardInterrupt; a second one raises at once.
        """
        if epochs is None and steps is None:
            raise ValueError("fit: how long? Give epochs, steps or both")
        self.loader, self.epochs, self.steps, self.stopped, self.ranks.asked = loader, epochs, steps, None, None
        if self._loader_state is not None and hasattr(loader, "load_state_dict"):
            loader.load_state_dict(self._loader_state)
        self._loader_state = None
        self._join(loader)
        with ExitStack() as stack:
            for callback in self.callbacks:
                stack.enter_context(callback.fitting(self))
            return self._fit(loader, valid)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return self.history._repr_html_()

    def _join(self, loader: Any) -> None:
        """Make sure that all ranks are about to do the same, and get ready for steps of several parts."""
        self.parts = None
        if self.accumulate == 1:
            return
        sizes = f"a loader of {len(loader)} batches" if hasattr(loader, "__len__") else "a loader of unknown length"
        place = f"epoch {self.epoch}, batch {self.batch}, step {self.step}"
        plan = f"fit({self.epochs} epochs, steps={self.steps}) with accumulate={self.accumulate}"
        self.ranks.join(
            self.model,
            [
                sizes,
                place,
                plan,
                f"clip_norm={self.clip_norm}",
                f"metrics {list(self.metrics)}",
                f"overlap={self.overlap}",
            ],
        )
        buffers = dict(self.model.named_buffers()) if hasattr(self.model, "named_buffers") else {}
        if self._seed is None and needle.random.get_state() is None:
            self._seed = peek()
        given = buffers, self.keep.values(), len(self._means), self._seed or 0
        # without a length nobody knows which part of an epoch is the last
        apart = self.ranks.apart() if self.overlap and hasattr(loader, "__len__") else None
        self.parts = Parts(self.optimizer.params, self.accumulate, self.ranks.world, *given, apart)

    def _fit(self, loader: Any, valid: Any) -> dict:
        self._started = time.perf_counter()
        logs: dict[str, Any] = {}
        try:
            with asking_first(lambda: self.stop("interrupted")):
                self._tell("on_fit_begin")
                while not self._stops() and not self._done():
                    logs = self._epoch(loader, valid)
        finally:
            self._seconds, self._started = self.seconds, None
        if self.stopped == "interrupted":
            self._tell("on_interrupt")
            raise KeyboardInterrupt(f"fit was interrupted, and has ended after step {self.step}")
        self._tell("on_fit_end")
        return logs

    def _done(self) -> bool:
        return (self.epochs is not None and self.epoch >= self.epochs) or (
            self.steps is not None and self.step >= self.steps
        )

    def _epoch(self, loader: Any, valid: Any) -> dict:
        """The rest of the epoch under way; its metrics, which are those of a part where it was cut short."""
        self.model.train()
        self._tell("on_epoch_begin")
        for batch in self._batches_left(loader):
            if not self._learn(batch, self._group_size(loader)):
                continue
            if self.stopped == "interrupted":
                return {}
            if self.stopped or (self.steps is not None and self.step >= self.steps):
                break
        else:  # the whole epoch
            if not self.batch:
                raise ValueError("fit: the loader has no batches")
            if self.batch % self.accumulate and not hasattr(loader, "__len__"):  # it ended within a group, unforeseen
                self._finish(self.batch % self.accumulate, self.accumulate)
            if self.schedule is not None and self.schedule_every == "epoch":
                self.schedule.step()
            self.epoch, self.batch = self.epoch + 1, 0
        self.ranks.check_model(self.model, self.step)
        logs = {"epoch": self.epoch + (self.batch > 0), "step": self.step, **self._values()}
        if valid is not None:
            logs |= {f"valid_{name}": value for name, value in self._evaluate(valid, self.ranks).items()}
        if not self.batch:
            self._means = self._new_means()
        told = logs | {"lr": self.lr, "seconds": self.seconds}
        self.history.append({"kind": "epoch", **told})
        self._tell("on_epoch_end", told)
        return logs

    def _learn(self, batch: Any, group: int) -> bool:
        """Gradients of one batch; a step of the optimizer at the end of a group, and whether it came."""
        number = self.batch % self.accumulate
        if number == 0:
            self.optimizer.reset_grad()
            self._group = Mean()
        if self.parts is None:
            self._note(self._figures(batch, True, group), self.batch)
        elif self.parts.wants(self.batch):
            with self.parts.part(self.step, number, group):
                figures = self._figures(batch, True, group)
            self.parts.add(figures, self._statistics)
        self.batch += 1
        if whole := number + 1 == group:
            self._finish(group, group)
        return whole

    def _finish(self, parts: int, group: int) -> None:
        """A step of the optimizer for the last batches, as many as `parts`, of a group that was to have more."""
        self.ranks.at(self.step)
        if self.parts is not None:
            for i, figures in enumerate(self.parts.finish(parts)):
                self._note(figures, self.batch - parts + i)
        self._apply(group > 1 and not self._sums and self._group.weight > 0)
        self.step += 1
        self._tell("on_step_end")
        self._stops()

    def _note(self, figures: Figures, batch: int) -> None:
        """Take loss and metrics of a batch into the means of step and epoch."""
        for mean, (value, weight) in zip(self._means.values(), figures, strict=True):
            mean.add(value, weight)
        value, weight = figures[0]
        if weight and not math.isfinite(value):
            raise FloatingPointError(
                f"the loss is {value} in epoch {self.epoch + 1}, batch {batch + 1}; try a smaller learning rate or clip_norm"
            )
        self._group.add(value, weight)
        self.last_loss = value if self.parts is None else self._group.value

    def _change(self, weighted: bool) -> None:
        """A step of the optimizer; `weighted` gradients are sums over targets, to be divided by their number."""
        depends(vars(self), "optimizer", "schedule", "clip_norm")
        if weighted:
            weight = repeat(self._group_weight)
            for p in self.optimizer.params:
                if p.grad is not None:
                    p.grad = Tensor.make_const(p.grad.realize_cached_data() / weight)
        if self.clip_norm is not None:
            clip_grad_norm(self.optimizer.params, self.clip_norm)
        self.optimizer.step()
        if self.schedule is not None and self.schedule_every == "step":
            self.schedule.step()

    def _group_weight(self) -> float:
        return self._group.weight

    def _batch_weight(self) -> float:
        return self._weight

    @property
    def _sums(self) -> bool:
        """Whether the loss is a sum over the targets, whose gradients add up as they are."""
        return getattr(self.loss, "reduction", "mean") == "sum"

    def _compute(self, x: Any, target: Any, backward: bool, weighted: bool) -> tuple[Any, Any, Any]:
        """Output, loss, and what running statistics are still to follow; with `backward` the gradients too."""
        depends(vars(self), "model", "loss")
        put_off: AbstractContextManager = nullcontext([]) if self.parts is None else self.parts.statistics_of()
        with put_off as statistics:
            output = self.model(x)
        loss = self.loss(output, target)
        if backward:
            part = loss * repeat(self._batch_weight) if weighted else loss
            part.backward()
        return output, loss, statistics

    def _figures(self, batch: Any, backward: bool = False, group: int = 1) -> Figures:
        """The loss per target and how many targets that is the mean of, and the same of each metric; `backward`: gradients too."""
        fields = () if isinstance(batch, (Tensor, dict)) else tuple(batch)
        if len(fields) != 2 or not hasattr(fields[1], "shape"):
            raise TypeError(f"Trainer: a batch is {form_of(batch)}, expected (input, target) with a target of tensors")
        x, target = fields
        weight = self._weight = count_targets(self.loss, target)
        # a batch without targets has no loss, and no gradient
        output, loss, self._statistics = self._run(x, target, bool(backward and weight), group > 1 and not self._sums)
        value = float(loss.item())
        if self._sums and weight:
            value /= weight
        with no_grad():
            others = [
                (float(metric(output, target)), count_targets(metric, target)) for metric in self.metrics.values()
            ]
        return [(value, weight), *others]

    def _batches_left(self, loader: Any) -> Iterator:
        """The batches of this epoch that have not been used."""
        if self.batch and hasattr(loader, "load_state_dict"):
            loader.load_state_dict(loader.state_dict())  # a loader's next pass would be the next epoch
            return self._pass(loader)
        return itertools.islice(self._pass(loader), self.batch, None)

    def _pass(self, loader: Any) -> Iterator:
        return iter(loader) if self.parts is None else parts_of(loader, self.parts.wants)

    def _group_size(self, loader: Any) -> int:
        """Batches in the group of the next batch: the last group of an epoch may be smaller."""
        if self.accumulate == 1 or not hasattr(loader, "__len__"):
            return self.accumulate
        return min(self.accumulate, len(loader) - self.batch // self.accumulate * self.accumulate)

    # ---- Evaluation ------------------------------------------------------------------------------------

    def evaluate(self, loader: Iterable) -> dict[str, float]:
        """Loss and metrics of the model in eval mode; nothing is recorded, nothing changes."""
        return self._evaluate(loader, None)

    def _evaluate(self, loader: Iterable, ranks: Ranks | None) -> dict[str, float]:
        """The same; with `ranks`, which all call it, they share the batches where these are independent of each other."""
        means, training = self._new_means(), self.model.training
        self.model.eval()
        try:
            with no_grad():
                figures = map(self._figures, loader) if ranks is None else ranks.evaluated(self._figures, loader)
                for each in figures:
                    for mean, (value, weight) in zip(means.values(), each, strict=True):
                        mean.add(value, weight)
        finally:
            self.model.train() if training else self.model.eval()
        return self._values(means)

    def _new_means(self) -> dict[str, Mean]:
        return {name: Mean() for name in ("loss", *self.metrics)}

    def _values(self, means: dict[str, Mean] | None = None) -> dict[str, float]:
        return {name: mean.value for name, mean in (self._means if means is None else means).items()}

    @property
    def running(self) -> dict[str, float]:
        """Means of loss and metrics over the epoch so far."""
        return self._values()

    @property
    def seconds(self) -> float:
        """Time spent in `fit`, that of the runs this one goes on from included."""
        return self._seconds + (time.perf_counter() - self._started if self._started is not None else 0.0)

    @property
    def lr(self) -> float:
        return float(self.optimizer.lr)

    # ---- Stopping and going on -------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Let `fit` end after the step under way, on all ranks."""
        if self.ranks.world is None:
            self.stopped = self.stopped or reason
        else:
            self.ranks.asked = self.ranks.asked or reason

    def _stops(self) -> bool:
        """Whether `fit` is to end; ranks agree on it."""
        if self.ranks.world is not None:
            self.stopped = self.stopped or self.ranks.agreed_to_stop()
        return bool(self.stopped)

    def state_dict(self) -> dict[str, Any]:
        """Everything the rest of the run depends on; to be asked between steps, as callbacks are told.

        On several ranks all of them ask. Rank 0 gets what one process would have, the others an empty dict.
        """
        parts = {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule, **self.keep}
        states = {name: self.ranks.state_of(part) for name, part in parts.items() if part is not None}
        if self.ranks.rank:
            return {}
        return {
            **states,
            "callbacks": self._callback_states(),
            "loader": self.loader.state_dict() if hasattr(self.loader, "state_dict") else self._loader_state,
            "random": random_state(),
            "trainer": {
                "epoch": self.epoch,
                "step": self.step,
                "batch": self.batch,
                "seconds": self.seconds,
                "means": {name: mean.state_dict() for name, mean in self._means.items()},
                **({} if self._seed is None else {"seed": self._seed}),
            },
        }

    def _callback_states(self) -> dict[str, Any]:
        states: dict[str, Any] = {}
        for callback in self.callbacks:
            if state := callback.state_dict():
                if callback.name in states:
                    raise ValueError(f"Trainer: two callbacks with a state have the name {callback.name}")
                states[callback.name] = state
        return states

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was asked, with the next `fit`."""
        parts = {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule, **self.keep}
        parts = {name: part for name, part in parts.items() if part is not None}
        if missing := [name for name in (*parts, "loader", "random", "trainer") if name not in state]:
            raise ValueError(f"Trainer: the state has no {', '.join(missing)}")
        own, told = state["trainer"], state.get("callbacks", {})
        lost = [f"callback {name}" for name in self._callback_states() if name not in told]
        lost += [
            f"mean of {name} in an epoch under way" for name in self._means if own["batch"] and name not in own["means"]
        ]
        if lost:
            raise ValueError(f"Trainer: the state has no {', '.join(lost)}")
        for name, part in parts.items():
            part.load_state_dict(state[name])
        for callback in self.callbacks:
            if callback.name in told:
                callback.load_state_dict(told[callback.name])
        self.epoch, self.step, self.batch, self._seconds = own["epoch"], own["step"], own["batch"], own["seconds"]
        for name, mean in self._means.items():
            if name in own["means"]:
                mean.load_state_dict(own["means"][name])
        self.loader, self._loader_state, self._seed = None, state["loader"], own.get("seed")
        set_random_state(state["random"])

    def _tell(self, event: str, *args: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self, *args)


def fit(
    model: Any,
    optimizer: Any,
    loss: Callable[[Any, Any], Any],
    loader: Iterable,
    epochs: int | None = None,
    *,
    steps: int | None = None,
    valid: Iterable | None = None,
    **options: Any,
) -> Trainer:
    """Train a model in one call; `options` are those of `Trainer`, which is returned.

    >>> import needle.nn as nn, needle.optim as optim, numpy as np, needle as ndl
    >>> np.random.seed(0)
    >>> x = ndl.Tensor(np.random.randn(64, 2), requires_grad=False)
    >>> y = ndl.Tensor((x.numpy()[:, 0] > 0).astype("int32"), requires_grad=False)
    >>> model = nn.Linear(2, 2)
    >>> trainer = fit(model, optim.SGD(model.parameters(), lr=0.5), nn.SoftmaxLoss(), [(x, y)], epochs=20)
    >>> trainer.step, trainer.evaluate([(x, y)])["loss"] < 0.4
    (20, True)
    """
    trainer = Trainer(model, optimizer, loss, **options)
    trainer.fit(loader, epochs, steps=steps, valid=valid)
    return trainer
