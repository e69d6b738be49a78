"""NAdam, RAdam and Lion: other uses of the means of gradients and of their squares."""

import math
from collections.abc import Iterable
from typing import Any

import needle_ndarray as nd
from needle import Tensor
from needle.autograd import array_api
from needle_ndarray import NDArray
from needle_ndarray.extension import depends, repeat
from needle_nn.optim.optimizer import Optimizer
from needle_nn.optim.options import Flag, Option, both_betas


class _Moments(Optimizer):
    """m = beta1 m + (1 - beta1) g' and v = beta2 v + (1 - beta2) g'^2; a subclass says what a step makes of them."""

    states: tuple[str, ...] = ("m", "v")
    lr, eps, weight_decay = Option(), Option(), Option()
    beta1, beta2, maximize = Option(below=1), Option(below=1), Flag()

    def __init__(self, params: Iterable[Any], beta1: Any, beta2: Any, betas: Any, **options: Any) -> None:
        beta1, beta2 = both_betas(type(self).__name__, beta1, beta2, betas)
        super().__init__(params, beta1=beta1, beta2=beta2, **options)

    def fills(self, group: dict[str, Any]) -> tuple[str, ...]:
        return self.states

    def moments(self, group: dict[str, Any], params: list[Tensor], arrays: list[NDArray], grads: list[NDArray]) -> Any:
        """(p, g', m, v) of every parameter, m and v after this step."""
        depends(group, "beta1", "beta2", "weight_decay", "eps")
        beta1, beta2, decay = group["beta1"], group["beta2"], group["weight_decay"]
        states = self.state_of("m", params, arrays), self.state_of("v", params, arrays)
        for p, g, m, v in zip(arrays, grads, *states, strict=True):
            g = g + p * decay if decay else g
            nd.accumulate(m, g, beta1, 1 - beta1)
            nd.accumulate(v, g * g, beta2, 1 - beta2)
            yield p, g, m, v


class NAdam(_Moments):
    """p -= lr ((1 - c_t) g' / (1 - C_t) + c_t+1 m / (1 - C_t+1)) / (sqrt(v^) + eps): Adam that looks a step ahead

    with c_t = beta1 (1 - 0.96^(t momentum_decay) / 2), C_t their product, v^ = v / (1 - beta2^t).

    Parameters
    ----------
    params, lr, beta1, beta2, eps, weight_decay, betas : as for Adam
    momentum_decay : how fast c_t comes near to beta1
    foreach : PyTorch's; of no effect
    maximize : go up, along -g

    >>> import needle as ndl
    >>> w = ndl.Tensor([1.0, -100.0])
    >>> optimizer = NAdam([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> [round(x, 3) for x in w.tolist()]
    [0.472, -99.472]
    """

    momentum_decay = Option()

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.002,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 0.004,
        *,
        betas: Any = None,
        foreach: Any = None,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay}
        options["maximize"] = maximize
        super().__init__(params, beta1, beta2, betas, **options)
        self.products: dict[tuple[float, float], tuple[int, float]] = {}

    def update(self, group: dict[str, Any], params: list[Tensor], arrays: list[NDArray], grads: list[NDArray]) -> None:
        of_gradient, of_mean, correction = repeat(self._numbers, group)
        for p, g, m, v in self.moments(group, params, arrays, grads):
            root = (v / correction).sqrt() + group["eps"]
            p -= (g * of_gradient + m * of_mean) / root

    def _numbers(self, group: dict[str, Any]) -> tuple[float, ...]:
        """What may change from step to step."""
        beta1, decay = group["beta1"], group["momentum_decay"]
        now, ahead = (beta1 * (1 - 0.5 * 0.96 ** (t * decay)) for t in (self.t, self.t + 1))
        product = self._product(beta1, decay, self.t)
        lr = group["lr"]
        return lr * (1 - now) / (1 - product), lr * ahead / (1 - product * ahead), 1 - group["beta2"] ** self.t

    def _product(self, beta1: float, decay: float, t: int) -> float:
        """c_1 c_2 ... c_t, from that of the last step where it is known."""
        known, value = self.products.get((beta1, decay), (0, 1.0))
        if known > t:
            known, value = 0, 1.0
        for i in range(known + 1, t + 1):
            value *= beta1 * (1 - 0.5 * 0.96 ** (i * decay))
        self.products[beta1, decay] = t, value
        return value


class Adamax(Optimizer):
    """m = beta1 m + (1 - beta1) g';  n = max(beta2 n, |g'| + eps);  p -= lr m / ((1 - beta1^t) n), with g' = g + weight_decay p

    Parameters
    ----------
    params, lr, beta1, beta2, eps, weight_decay, betas : as for Adam
    foreach : PyTorch's; of no effect
    maximize : go up, along -g

    >>> import needle as ndl
    >>> w = ndl.Tensor([1.0, -100.0])
    >>> optimizer = Adamax([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5, -99.5]
    """

    states = ("m", "n")
    lr, eps, weight_decay = Option(), Option(), Option()
    beta1, beta2, maximize = Option(below=1), Option(below=1), Flag()

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.002,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        betas: Any = None,
        foreach: Any = None,
        maximize: bool = False,
    ) -> None:
        beta1, beta2 = both_betas("Adamax", beta1, beta2, betas)
        numbers = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, numbers, maximize=maximize)

    def fills(self, group: dict[str, Any]) -> tuple[str, ...]:
        return self.states

    def update(self, group: dict[str, Any], params: list[Tensor], arrays: list[NDArray], grads: list[NDArray]) -> None:
        depends(group, "beta1", "beta2", "weight_decay", "eps")
        beta1, decay, rate = group["beta1"], group["weight_decay"], repeat(self._rate, group)
        states = self.state_of("m", params, arrays), self.state_of("n", params, arrays)
        for p, g, m, n in zip(arrays, grads, *states, strict=True):
            g = g + p * decay if decay else g
            nd.accumulate(m, g, beta1, 1 - beta1)
            n[...] = nd.maximum(n * group["beta2"], g.abs() + group["eps"])
            p -= m / n * rate

    def _rate(self, group: dict[str, Any]) -> float:
        return group["lr"] / (1 - group["beta1"] ** self.t)


class RAdam(_Moments):
    """p -= lr m^ r / (sqrt(v^) + eps) where enough steps are known for v^ (rho > 5), else p -= lr m^

    with rho = n - 2 t beta2^t / (1 - beta2^t), n = 2 / (1 - beta2) - 1 and r^2 = (rho - 4)(rho - 2) n / ((n - 4)(n - 2) rho).

    Parameters
    ----------
    params, lr, beta1, beta2, eps, weight_decay, betas : as for Adam
    foreach : PyTorch's; of no effect
    maximize : go up, along -g

    >>> import needle as ndl
    >>> w = ndl.Tensor([1.0])
    >>> optimizer = RAdam([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        betas: Any = None,
        foreach: Any = None,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, beta1, beta2, betas, **options)

    def update(self, group: dict[str, Any], params: list[Tensor], arrays: list[NDArray], grads: list[NDArray]) -> None:
        # One expression in all steps, so that a captured one holds for all: 0 roots and 1 below, or the other way round.
        factor, root, one = repeat(self._numbers, group)
        for p, _, m, v in self.moments(group, params, arrays, grads):
            p -= m * factor / ((v.sqrt() + group["eps"]) * root + one)

    def _numbers(self, group: dict[str, Any]) -> tuple[float, ...]:
        """What may change from step to step."""
        t, beta2 = self.t, group["beta2"]
        n, rest = 2 / (1 - beta2) - 1, 1 - beta2**t
        rho = n - 2 * t * beta2**t / rest
        factor = group["lr"] / (1 - group["beta1"] ** t)
        if rho <= 5:
            return factor, 0.0, 1.0
        r = math.sqrt((rho - 4) * (rho - 2) * n / ((n - 4) * (n - 2) * rho))
        return factor * r * math.sqrt(rest), 1.0, 0.0


class Lion(Optimizer):
    """p -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay p);  m = beta2 m + (1 - beta2) g

    Parameters
    ----------
    params : Tensors, or groups of them with numbers of their own
    lr : how far every element moves in a step, about a tenth of what suits AdamW
    beta1, beta2 : in [0, 1), weights of the past in the step and in the mean
    weight_decay : share of p, times lr, that a step takes away
    betas : both of them
    maximize : go up, along -g

    >>> import needle as ndl
    >>> w = ndl.Tensor([1.0, -100.0])
    >>> optimizer = Lion([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5, -99.5]
    """

    states = ("m",)
    lr, weight_decay = Option(), Option()
    beta1, beta2, maximize = Option(below=1), Option(below=1), Flag()

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        beta1: float = 0.9,
        beta2: float = 0.99,
        weight_decay: float = 0.0,
        *,
        betas: Any = None,
        maximize: bool = False,
    ) -> None:
        beta1, beta2 = both_betas("Lion", beta1, beta2, betas)
        numbers = {"lr": lr, "beta1": beta1, "beta2": beta2, "weight_decay": weight_decay}
        super().__init__(params, numbers, maximize=maximize)

    def fills(self, group: dict[str, Any]) -> tuple[str, ...]:
        return self.states

    def update(self, group: dict[str, Any], params: list[Tensor], arrays: list[NDArray], grads: list[NDArray]) -> None:
        depends(group, "beta1", "beta2")
        beta1, beta2 = group["beta1"], group["beta2"]
        lr, kept = repeat(self._numbers, group)
        for p, g, m in zip(arrays, grads, self.state_of("m", params, arrays), strict=True):
            p *= kept
            p -= array_api.sign(m * beta1 + g * (1 - beta1)) * lr
            nd.accumulate(m, g, beta2, 1 - beta2)

    def _numbers(self, group: dict[str, Any]) -> tuple[float, float]:
        """What may change from step to step."""
        return group["lr"], 1 - group["lr"] * group["weight_decay"]
