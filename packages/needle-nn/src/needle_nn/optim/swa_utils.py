"""Averages of the weights that training goes through, with PyTorch's names; `needle.optim.EMA` is Needle's own.

>>> import needle as ndl
>>> from needle import nn
>>> model = nn.Linear(1, 1, bias=False)
>>> average = AveragedModel(model)
>>> for w in (2.0, 4.0):
...     _ = nn.init.constant_(model.weight, w)
...     average.update_parameters(model)
>>> average.module.weight.tolist(), average(ndl.ones(1, 1)).tolist(), model.weight.tolist()
([[3.0]], [[3.0]], [[4.0]])
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import needle_ndarray as nd
from needle import Tensor, no_grad
from needle_nn.nn.module import Module
from needle_nn.nn.norms import BatchNorm1d
from needle_nn.optim.optimizer import Optimizer
from needle_nn.optim.options import count, number
from needle_nn.optim.schedules import Schedule

__all__ = [
    "AveragedModel",
    "SWALR",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def get_swa_avg_fn() -> Callable[[Tensor, Tensor, Any], Tensor]:
    """The function a + (p - a) / (n + 1): of all weights the mean"""
    return lambda a, p, n: a + (p - a) / (int(n) + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Tensor, Tensor, Any], Tensor]:
    """The function decay a + (1 - decay) p"""
    decay = number("get_ema_avg_fn", "decay", decay, 0, math.nextafter(1, 2))
    return lambda a, p, n: a * decay + p * (1 - decay)


def _of_lists(function: Callable[[Tensor, Tensor, Any], Tensor]) -> Callable[[list[Tensor], list[Tensor], Any], None]:
    def multi(averages: list[Tensor], params: list[Tensor], n: Any) -> None:
        for a, p in zip(averages, params, strict=True):
            a.copy_(function(a, p, n))

    return multi


def get_swa_multi_avg_fn() -> Callable[[list[Tensor], list[Tensor], Any], None]:
    """`get_swa_avg_fn` of lists, written into the first"""
    return _of_lists(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[list[Tensor], list[Tensor], Any], None]:
    """`get_ema_avg_fn` of lists, written into the first"""
    return _of_lists(get_ema_avg_fn(decay))


class AveragedModel(Module):
    """A copy of a model, `module`, whose weights are the average of those that `update_parameters` has seen.

    Parameters
    ----------
    model : what is copied
    device : where the copy is
    avg_fn : of (average, weight, n) the next average after n; by default the mean of all
    multi_avg_fn : of lists of both, and n; writes into the first list
    use_buffers : average the buffers too, which are copied else
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[[Tensor, Tensor, Any], Tensor] | None = None,
        multi_avg_fn: Callable[[list[Tensor], list[Tensor], Any], None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise TypeError("AveragedModel: avg_fn and multi_avg_fn: expected one of them")
        from copy import deepcopy  # only here: importing needle.optim is to stay cheap

        self.module = deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", Tensor(0, dtype="int64", device=device, requires_grad=False))
        self._average = multi_avg_fn or _of_lists(avg_fn or get_swa_avg_fn())
        self.use_buffers = bool(use_buffers)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the weights of a model into the average; the first ones are copied."""
        own: list[Tensor] = [*self.module.parameters()]
        given: list[Tensor] = [*model.parameters()]
        buffers, others = list(self.module.buffers()), list(model.buffers())
        if [p.shape for p in own + buffers] != [p.shape for p in given + others]:
            raise ValueError("AveragedModel.update_parameters: the model's weights have other shapes than the copy's")
        floats = [i for i, b in enumerate(buffers) if b.dtype.is_float] if self.use_buffers else []
        n = int(self.n_averaged.item())
        with no_grad():
            given = [p.detach().to(a.device) for a, p in zip(own, given, strict=True)]
            if n:
                own, given = (
                    own + [buffers[i] for i in floats],
                    given + [others[i].to(buffers[i].device) for i in floats],
                )
                self._average([a.detach() for a in own], given, n)
            else:
                for a, p in zip(own, given, strict=True):
                    a.realize_cached_data()[...] = p.realize_cached_data()
            for i, (a, b) in enumerate(zip(buffers, others, strict=True)):
                if not n or i not in floats:
                    a.realize_cached_data()[...] = b.to(a.device).realize_cached_data()
            self.n_averaged.add_(1)


class SWALR(Schedule):
    """lr from where it is to swa_lr in anneal_epochs steps, then swa_lr

    Parameters
    ----------
    optimizer : whose lr it sets, after another schedule has done so too
    swa_lr : the last rate, or a list with one for each group
    anneal_epochs, anneal_strategy : how many steps, and along half a cosine, "cos", or a line, "linear"
    last_epoch : t of the last step made
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"SWALR: anneal_strategy {anneal_strategy!r}: expected 'cos' or 'linear'")
        groups = len(optimizer.param_groups)
        given = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * groups
        if len(given) != groups:
            raise ValueError(f"SWALR: swa_lr has {len(given)} rates for {groups} groups of parameters")
        self.ends = [number("SWALR", "swa_lr", rate) for rate in given]
        self.length, self.linear = count("SWALR", "anneal_epochs", anneal_epochs, 0), anneal_strategy == "linear"
        super().__init__(optimizer, last_epoch)

    def _share(self, t: int) -> float:
        """Which part of swa_lr is in the rate."""
        at = max(0.0, min(1.0, t / max(1, self.length)))
        return at if self.linear else (1 - math.cos(math.pi * at)) / 2

    def _apply(self) -> None:
        """From the rates that there are, which another schedule may have set: where this one would have begun, then to its t."""
        t = self.t if self.length else max(1, self.t)
        before, now = self._share(t - 1), self._share(t)
        rates = []
        for rate, end in zip(self.last_lr, self.ends, strict=True):
            start = end if before == 1 else (rate - before * end) / (1 - before)
            rates.append(end * now + start * (1 - now))
        self._set(rates)


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Make the running statistics of batch norms those of the batches of a loader, each of the same weight.

    Parameters
    ----------
    loader : batches; of tuples and lists the first entry is the input
    model : put into training meanwhile
    device : where batches go before
    """
    norms = [
        module for module in model.modules() if isinstance(module, BatchNorm1d) and module.running_mean is not None
    ]
    if not norms:
        return
    momenta, training = [norm.momentum for norm in norms], {id(m): m.training for m in model.modules()}
    for norm in norms:
        norm.reset_running_stats()
    model.train()
    try:
        for i, batch in enumerate(loader):
            x = batch[0] if isinstance(batch, (tuple, list)) else batch
            for norm in norms:
                norm.momentum = 1 / (i + 1)
            x = x if isinstance(x, Tensor) else Tensor(nd.array(x), requires_grad=False)
            model(x if device is None else x.to(device))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module in model.modules():
            module.training = training[id(module)]
