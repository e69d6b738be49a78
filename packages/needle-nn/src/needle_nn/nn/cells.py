"""Cells of recurrent networks: one step, and a run over time.

A cell has W_ih, W_hh, bias_ih and bias_hh, drawn in that order from U(-1/sqrt(h), 1/sqrt(h)). It runs over all times in one op,
`ops.lstm` and the like. A cell with methods of its own is asked time by time: `project` gives the part of its sums that comes from
the input, for all times, and `step` adds the part that comes from the state.

>>> import needle as ndl
>>> LSTMCell(5, 3)(ndl.ones(4, 5))[0].shape
(4, 3)
"""

import math
from typing import Any, ClassVar

from needle import Tensor, init, ops
from needle.typing import DeviceLike, DTypeLike
from needle_nn.checks import check_flag
from needle_nn.nn import axes
from needle_nn.nn.module import Module, Parameter, check_sizes, expect


class Cell(Module):
    """`gates` weights of a state side by side: W_ih (input, gates h), W_hh (h, gates h), biases (gates h,)."""

    gates: ClassVar[int] = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool, device: DeviceLike, dtype: DTypeLike) -> None:
        super().__init__()
        check_sizes(self, input_size=input_size, hidden_size=hidden_size)
        check_flag(type(self).__name__, "bias", bias)
        self.input_size, self.hidden_size = input_size, hidden_size
        bound, wide = 1 / math.sqrt(hidden_size), self.gates * hidden_size

        def draw(*shape):
            return Parameter(init.rand(*shape, low=-bound, high=bound, device=device, dtype=dtype))

        if self.as_torch:
            self.weight_ih, self.weight_hh = draw(wide, input_size), draw(wide, hidden_size)
        else:
            self.W_ih, self.W_hh = draw(input_size, wide), draw(hidden_size, wide)
        self.bias_ih = draw(wide) if bias else None
        self.bias_hh = draw(wide) if bias else None

    def __getattr__(self, name):
        """W_ih and W_hh of a cell that has PyTorch's names and axes."""
        if name not in ("W_ih", "W_hh"):
            raise AttributeError(f"{type(self).__name__} has no {name!r}", name=name, obj=self)
        return axes.used(self, getattr(self, f"weight_{name[2:]}"), axes.LINEAR)

    def project(self, x: Tensor) -> Tensor:
        """x W_ih + bias_ih: (..., input) -> (..., gates h)"""
        expect(self, x, ..., self.input_size)
        y = x @ self.W_ih
        return y if self.bias_ih is None else y + self.bias_ih

    def recur(self, h: Any) -> Tensor:
        """h W_hh + bias_hh: (B, h) -> (B, gates h)"""
        y = h @ self.W_hh
        return y if self.bias_hh is None else y + self.bias_hh

    def parts(self, sums: Any) -> Any:
        """(B, gates h) -> one (B, h) for each gate"""
        return ops.Split(1)(sums.reshape((sums.shape[0], self.gates, self.hidden_size))).tuple()

    def start(self, x: Tensor, h: Any) -> Any:
        """The state h, checked, or zeros where it is None."""
        if h is None:
            return init.zeros(x.shape[-2], self.hidden_size, device=x.device, dtype=x.dtype)
        expect(self, h, x.shape[-2], self.hidden_size, name="state")
        return h


class RNNCell(Cell):
    """h' = tanh(x W_ih + b_ih + h W_hh + b_hh), or relu: (B, input), (B, h) -> (B, h)"""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNNCell: nonlinearity {nonlinearity!r}: expected 'tanh' or 'relu'")
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, X: Tensor, h: Any = None) -> Tensor:
        return self.step(self.project(X), self.start(X, h))

    def step(self, projected: Tensor, h: Any) -> Any:
        sums = projected + self.recur(h)
        return ops.tanh(sums) if self.nonlinearity == "tanh" else ops.relu(sums)


class GRUCell(Cell):
    """r, z = sigmoid(x W + h U), n = tanh(x W_n + r (h U_n)), h' = (1 - z) n + z h: (B, input), (B, h) -> (B, h)"""

    gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)

    def forward(self, X: Tensor, h: Any = None) -> Tensor:
        return self.step(self.project(X), self.start(X, h))

    def step(self, projected: Tensor, h: Any) -> Any:
        (x_r, x_z, x_n), (h_r, h_z, h_n) = self.parts(projected), self.parts(self.recur(h))
        r, z = ops.sigmoid(x_r + h_r), ops.sigmoid(x_z + h_z)
        n = ops.tanh(x_n + r * h_n)
        return n + z * (h - n)


class LSTMCell(Cell):
    """i, f, g, o = x W_ih + b_ih + h W_hh + b_hh; c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c'): (B, input), (h, c) -> h', c'"""

    gates = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)

    def forward(self, X: Tensor, h: Any = None) -> tuple[Tensor, Tensor]:
        h0, c0 = (None, None) if h is None else both(self, h)
        return self.step(self.project(X), (self.start(X, h0), self.start(X, c0)))

    def step(self, projected: Tensor, state: Any) -> Any:
        h, c = state
        i, f, g, o = self.parts(projected + self.recur(h))
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        return ops.sigmoid(o) * ops.tanh(c), c


def both(layer: Any, state: Any) -> Any:
    """(h, c), and not a Tensor that would be taken apart along its first axis."""
    if isinstance(state, Tensor) or len(state) != 2:
        raise TypeError(f"{type(layer).__name__}: the state is a {type(state).__name__}, expected (h, c)")
    return state


def run(cell: Any, x: Tensor, start: Any) -> Any:
    """A cell over time: (T, B, input) and the states at the start, each perhaps None -> h at all times, and the last states.

    A cell of this module goes in one op. Any other, a subclass or one with methods of its own, is asked step by step.
    """
    fused: Any = _FUSED.get(type(cell))
    if fused is not None and _METHODS.isdisjoint(cell.__dict__):
        for state in start:
            if state is not None:
                expect(cell, state, x.shape[-2], cell.hidden_size, name="state")
        settings = {"nonlinearity": cell.nonlinearity} if fused is ops.rnn else {}
        y, *last = fused(x, cell.W_ih, cell.W_hh, cell.bias_ih, cell.bias_hh, *start, **settings)
        return y, last
    every, single = [], len(start) == 1
    state = [cell.start(x, s) for s in start]
    for projected in ops.Split(0)(cell.project(x)).tuple():
        state = cell.step(projected, *state) if single else cell.step(projected, tuple(state))
        state = [state] if single else list(state)
        every.append(state[0])
    return ops.stack(every, 0), state


_METHODS = {"project", "recur", "parts", "start", "step", "forward"}
_FUSED = {RNNCell: ops.rnn, GRUCell: ops.gru, LSTMCell: ops.lstm}
