"""Recurrent networks over (time, batch, features), layer upon layer, in one direction or both.

>>> import needle as ndl
>>> y, (h, c) = LSTM(5, 3, num_layers=2)(ndl.ones(7, 4, 5))
>>> y.shape, h.shape, c.shape
((7, 4, 3), (2, 4, 3), (2, 4, 3))
>>> y, h = GRU(5, 3, bidirectional=True, batch_first=True)(ndl.ones(4, 7, 5))
>>> y.shape, h.shape
((4, 7, 6), (2, 4, 3))
"""

from typing import Any

from needle import ops
from needle.typing import DeviceLike, DTypeLike
from needle_nn.checks import check_flag
from needle_nn.nn import sequences
from needle_nn.nn.cells import GRUCell, LSTMCell, RNNCell, both, run
from needle_nn.nn.module import Module, check_sizes, expect
from needle_nn.nn.sequences import PackedSequence


class _Recurrent(Module):
    """Cells over time. Those of a layer that goes both ways lie side by side: forth, back, then the next layer's."""

    batch_first = bidirectional = False
    dropout = 0.0

    def _make(self, cell, input_size, hidden_size, num_layers, batch_first, dropout, bidirectional):
        """The cells, `cell(n)` for each input of n features."""
        what = type(self).__name__
        check_sizes(self, num_layers=num_layers)
        for name, flag in (("batch_first", batch_first), ("bidirectional", bidirectional)):
            check_flag(what, name, flag)
            if flag:
                setattr(self, name, True)
        if isinstance(dropout, (str, bool)) or not 0 <= dropout < 1:
            raise ValueError(f"{what}: dropout = {dropout!r}: expected a number from 0, below 1")
        if dropout:
            self.dropout = dropout
        ways = 1 + bool(bidirectional)
        sizes = [input_size] + [hidden_size * ways] * (num_layers - 1)
        return [cell(n) for n in sizes for _ in range(ways)]

    def _cells(self):
        """The cells, with what PyTorch puts behind the names of their weights."""
        cells = next((c for name, c in self.__dict__.items() if name.endswith("_cells")), ())
        ways = 1 + self.bidirectional
        return [(cell, f"_l{i // ways}" + "_reverse" * (i % ways)) for i, cell in enumerate(cells)]

    def _members(self):
        if not self.as_torch:
            yield from super()._members()
            return
        for cell, end in self._cells():
            for name, value, role in cell._members():
                yield name + end, value, role

    def __getattr__(self, name):
        """Weights under PyTorch's names, `weight_ih_l0`, where the module has these."""
        for cell, end in self._cells() if self.as_torch else ():
            if name.endswith(end) and (found := cell.__dict__.get(name.removesuffix(end))) is not None:
                return found
        raise AttributeError(f"{type(self).__name__} has no {name!r}", name=name, obj=self)

    def flatten_parameters(self):
        """Nothing: the weights are used where they lie."""

    def _forward(self, cells, x, starts):
        """(T, B, input) -> (T, B, h), or h of both directions side by side, and the last states of each kind (layers, B, h)."""
        packed = isinstance(x, PackedSequence)
        if packed:
            expect(self, x.data, "S", cells[0].input_size)
            batch = x.batch_sizes[0]
            starts = [start if start is None else x.sorted(start, 1) for start in starts]
        else:
            expect(self, x, *("BT" if self.batch_first else "TB"), cells[0].input_size)
            x = x.swapaxes(0, 1) if self.batch_first else x
            batch = x.shape[1]
        per_cell = list(zip(*[self._starts(cells, batch, start) for start in starts], strict=True))
        over_time = sequences.run_packed if packed else run_over_time
        y: Any = x
        ways, last = 1 + self.bidirectional, []
        for layer in range(0, len(cells), ways):
            if layer and self.dropout and self.training:
                y = y.mapped(lambda data: ops.dropout(data, self.dropout)) if packed else ops.dropout(y, self.dropout)
            found = [over_time(cells[i], y, per_cell[i], back=i > layer) for i in range(layer, layer + ways)]
            last += [state for _, state in found]
            outputs: list[Any] = [output for output, _ in found]
            y = outputs[0] if ways == 1 else sequences.side_by_side(outputs) if packed else ops.concatenate(outputs, 2)
        kinds = zip(*last, strict=True)  # a single one is a view of the state, which has an axis more
        states = [s[0].reshape((1, *s[0].shape)) if len(s) == 1 else ops.stack(list(s), 0) for s in kinds]
        if packed:
            return y, *[x.unsorted(state, 1) for state in states]
        return y.swapaxes(0, 1) if self.batch_first else y, *states

    def _starts(self, cells, batch, h0):
        """The state of every cell before the first time; None: zeros."""
        if h0 is None:
            return [None] * len(cells)
        expect(self, h0, len(cells), batch, cells[0].hidden_size, name="state")
        return ops.Split(0)(h0).tuple()


def run_over_time(cell: Any, x: Any, start: Any, back: bool = False) -> Any:
    """A cell over (T, B, input), from the first time on or from the last: h at all times, and the last states."""
    if not back:
        return run(cell, x, start)
    y, last = run(cell, ops.flip(x, 0), start)
    return ops.flip(y, 0), last


class RNN(_Recurrent):
    """`RNNCell` over time, layer upon layer: (T, B, input), h0 (layers, B, h) -> (T, B, h), h_n (layers, B, h)

    Parameters
    ----------
    batch_first : inputs and outputs are (B, T, ...); states stay (layers, B, h)
    dropout : of what one layer hands to the next, in training
    bidirectional : every layer also goes from the last time to the first; h twice as wide, and twice as many states
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()

        def cell(n):
            return RNNCell(n, hidden_size, bias, nonlinearity, device, dtype)

        self.rnn_cells = self._make(cell, input_size, hidden_size, num_layers, batch_first, dropout, bidirectional)

    def forward(self, X: Any, h0: Any = None) -> Any:
        return self._forward(self.rnn_cells, X, (h0,))


class GRU(_Recurrent):
    """`GRUCell` over time, layer upon layer: (T, B, input), h0 (layers, B, h) -> (T, B, h), h_n (layers, B, h)

    Parameters
    ----------
    batch_first, dropout, bidirectional : as for `RNN`
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()

        def cell(n):
            return GRUCell(n, hidden_size, bias, device, dtype)

        self.gru_cells = self._make(cell, input_size, hidden_size, num_layers, batch_first, dropout, bidirectional)

    def forward(self, X: Any, h0: Any = None) -> Any:
        return self._forward(self.gru_cells, X, (h0,))


class LSTM(_Recurrent):
    """`LSTMCell` over time, layer upon layer: (T, B, input), None or (h0, c0) of (layers, B, h) -> (T, B, h), (h_n, c_n)

    Parameters
    ----------
    batch_first, dropout, bidirectional : as for `RNN`
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = "float32",
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()

        def cell(n):
            return LSTMCell(n, hidden_size, bias, device, dtype)

        self.lstm_cells = self._make(cell, input_size, hidden_size, num_layers, batch_first, dropout, bidirectional)

    def forward(self, X: Any, h: Any = None) -> Any:
        y, *last = self._forward(self.lstm_cells, X, (None, None) if h is None else both(self, h))
        return y, tuple(last)
