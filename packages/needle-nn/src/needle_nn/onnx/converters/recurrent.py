"""Converters of recurrent layers, to ONNX's own nodes. Needle's weights are (input, gates H), ONNX's (1, gates H, input)."""

from typing import Any

import numpy as np

from needle import ops
from needle_nn.onnx.converters.elementwise import cast_all
from needle_nn.onnx.graph import Graph
from needle_nn.onnx.registry import Call, register

#: The type of the node, and where each of its gates lies among Needle's: LSTM i o f c in i f g o, GRU z r h in r z n.
KINDS = {ops.LSTM: ("LSTM", (0, 3, 1, 2)), ops.GRU: ("GRU", (1, 0, 2)), ops.RNN: ("RNN", (0,))}


@register(ops.LSTM, ops.GRU, ops.RNN, may_vary=("keep",))
def _recurrent(graph: Graph, call: Call) -> Any:
    """h at all time steps, and the last states; what the op keeps besides for its gradient is not there"""
    kind, gates = KINDS[type(call.op)]
    states = call.op.states
    x, *others = cast_all(graph, call)
    start, (w_ih, w_hh, *biases) = others[:states], others[states:]
    hidden = call.inputs[states + 2].shape[0]
    order = graph.constant(np.concatenate([np.arange(g * hidden, (g + 1) * hidden) for g in gates]), "int64")

    def ordered(name: str) -> str:
        return name if len(gates) == 1 else graph.op("Gather", name, order, axis=0)

    weights = [graph.unsqueeze(ordered(graph.transpose(w, (1, 0))), 0) for w in (w_ih, w_hh)]
    bias = graph.unsqueeze(graph.op("Concat", *map(ordered, biases), axis=0), 0) if biases else ""
    zero = all(graph.is_zero(h) for h in call.inputs[1 : states + 1])
    begin = [] if zero else ["", *[graph.unsqueeze(h, 0) for h in start]]
    settings: dict[str, Any] = {"hidden_size": hidden}
    if kind == "GRU":
        settings["linear_before_reset"] = 1
    if kind == "RNN":
        settings["activations"] = ["Relu" if call.op.nonlinearity == "relu" else "Tanh"]
    y, *last = graph.op(kind, x, *weights, bias, *begin, outputs=1 + states, **settings)
    return [graph.squeeze(y, 1), *[graph.squeeze(state, 0) for state in last]]
