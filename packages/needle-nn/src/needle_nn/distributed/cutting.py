"""A recorded graph cut over places: every edge between two ranks becomes a Send and a Recv, and each rank keeps its part."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import needle_ndarray as nd
from needle import Tensor, TensorOp, TensorTuple, draw_graph, lazy_mode
from needle.autograd import find_topo_sort
from needle_nn.checks import described
from needle_nn.distributed.communicator import MAX_TAG, Communicator
from needle_nn.distributed.ops import Recv, Send
from needle_nn.distributed.pipeline import mean_gradients, read_layout, tell_layout
from needle_nn.distributed.starting import current
from needle_nn.nn import Module


class Edge(NamedTuple):
    """A value that one rank computes and another one needs; with `grad`, its gradient comes back."""

    value: Any
    source: int
    target: int
    grad: bool
    tag: int


class After(TensorOp):
    """y = x, behind what gave the token;  dx = dy, dtoken = 0: backward comes to the token behind x"""

    needs = ""

    def compute(self, x, token):
        return x

    def gradient(self, out_grad, node):
        return out_grad, Tensor.make_const(nd.zeros((), "float32"))


class Behind(TensorOp):
    """y = token, for what shall come behind x;  dtoken = dy"""

    needs = ""

    def compute(self, token, x):
        return token

    def gradient(self, out_grad, node):
        return out_grad, None


class Cut:
    """A function whose graph is cut over ranks: `step` computes this rank's part of it, for each part of a batch.

    Every rank calls the function, in lazy mode, so that the graph is recorded and nothing is computed. `places` says where
    parameters are. An op is computed at the highest place among its inputs; values without a parameter below them, as inputs and
    labels, are everywhere they are needed.

    Parameters
    ----------
    function : (inputs of a part) -> a Tensor of one number, such as a loss
    places : {Tensor or Module: rank}: where parameters are, a module standing for all of its own
    world : the communicator; that of `init()`

    >>> import needle as ndl
    >>> from needle import nn
    >>> first, second, loss_of = nn.Linear(4, 8), nn.Linear(8, 3), nn.SoftmaxLoss()
    >>> model = Cut(lambda x, y: loss_of(second(ndl.relu(first(x))), y), {first: 0, second: 0})  # second: 1 with two ranks
    >>> x, y = ndl.Tensor(nd.ones((6, 4)), requires_grad=False), ndl.Tensor(nd.zeros(6), requires_grad=False)
    >>> loss = model.step([(x[:3], y[:3]), (x[3:], y[3:])])
    >>> [p.grad.shape for p in model.params]
    [(4, 8), (1, 8), (8, 3), (1, 3)]
    """

    def __init__(
        self,
        function: Callable[..., Tensor],
        places: Mapping[Tensor | Module, int],
        world: Communicator | None = None,
    ) -> None:
        self.function, self.world = function, current(world)
        self.places: dict[Any, int] = {}
        for what, rank in dict(places).items():
            if not isinstance(what, (Module, Tensor)):
                raise TypeError(f"Cut: places: expected Tensors and Modules, got {described(what)}")
            if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < self.world.size:
                raise ValueError(f"Cut: place {rank!r}: expected a rank from 0 to {self.world.size - 1}")
            self.places.update(dict.fromkeys(what.parameters() if isinstance(what, Module) else [what], rank))
        self.params = [p for p, rank in self.places.items() if rank == self.world.rank]
        self._likes: dict[int, Tensor] = {}

    def recorded(self, *inputs: Any) -> "Places":
        """The graph that the function records, cut."""
        with lazy_mode():
            return Places(self.function(*inputs), self.places)

    def draw(self, inputs: Sequence[Any], path: Any = None, **more: Any) -> Any:
        """The whole graph as `needle.draw_graph` draws it: each place has a colour, and edges between two are dashed."""
        graph = self.recorded(*inputs)
        return draw_graph(graph.output, path, places={v: p for v, p in graph.of.items() if p is not None}, **more)

    def step(self, parts: Sequence[Sequence[Any]]) -> float:
        """The mean output over the parts of a batch, on every rank; its gradient is in the `.grad` of this rank's parameters.

        All parts go forward and then all of them back, which is GPipe's schedule. parts: for each the function's inputs, with the
        same shapes; a rank that needs some of them for nothing may give others of their shapes.
        """
        if not parts:
            raise ValueError("Cut.step: expected a part or more, got none")
        ends: list[Any] = []
        outputs: list[float] = []
        for inputs in parts:
            graph = self.recorded(*inputs)
            with lazy_mode(False):
                end, output = self._forward(graph)
            ends.append(end)
            outputs += [] if output is None else [output.numpy().item()]
        with lazy_mode(False):
            mean_gradients(self.params, ends)
        return float(self.world.broadcast_object(sum(outputs) / len(parts) if outputs else None, graph.home))

    def _forward(self, graph: "Places") -> tuple[Tensor | None, Tensor | None]:
        """(where backward begins, the output), None for what this rank has not.

        All ranks go through the graph in the same order, and sends do not wait: no circle of ranks waits for each other.
        """
        rank = self.world.rank
        values: dict[Any, Any] = {}
        needed, at = graph.needed_by(rank), graph.edges_at()
        token = start = Tensor(0.0, dtype="float32")
        for value in graph.order:
            if value in needed:
                inputs = [values[x] for x in value.inputs]
                values[value] = value if value.op is None else type(value).make_from_op(value.op, inputs)
            for edge in at.get(value, ()):
                if edge.source == rank:
                    token = self._send(edge, values[value], token)
                elif edge.target == rank:
                    values[value], token = self._receive(edge, token)
        output = values[graph.output] if graph.home == rank else None
        if output is None or not output.requires_grad:
            return (None if token is start else token), output
        return (output if token is start else After()(output, token)), output

    def _send(self, edge: Edge, x: Tensor, token: Tensor) -> Tensor:
        """What comes behind this in the graph: backward waits here for the gradient of x, after all later edges."""
        if edge.tag not in self._likes:
            tell_layout(x, edge.target, self.world)
            self._likes[edge.tag] = x.detach()
        if not edge.grad:
            self.world.send(x.realize_cached_data(), edge.target, edge.tag)
            return token
        return Send(self.world, edge.target, edge.tag)(After()(x, token)).astype("float32")

    def _receive(self, edge: Edge, token: Tensor) -> tuple[Tensor, Tensor]:
        if edge.tag not in self._likes:
            device = self.params[0].device if self.params else nd.cpu()
            self._likes[edge.tag] = read_layout(edge.source, self.world, device)
        like = self._likes[edge.tag]
        if not edge.grad:
            given = self.world.recv(like.shape, like.dtype, edge.source, edge.tag).to(like.device)
            return Tensor.make_const(given), token
        x = Recv(self.world, like, edge.source, edge.tag)(token.astype(like.dtype))
        return x, Behind()(token, x)


class Places:
    """Where the values of a graph are: `of` {value: rank, or None for everywhere}, and the edges between ranks."""

    def __init__(self, output: Tensor, parameters: Mapping[Any, int]) -> None:
        if not isinstance(output, Tensor):
            raise TypeError(f"Cut: the function gave {described(output)}, expected a Tensor")
        self.output, self.order = output, find_topo_sort([output])
        self.of: dict[Any, int | None] = {}
        for value in self.order:
            self.of[value] = self._place(value, parameters)
        self.home = self.of[output] = self.of[output] or 0
        self.edges = self._edges()

    def _place(self, value: Any, parameters: Mapping[Any, int]) -> int | None:
        if value.op is None:
            if value.requires_grad and value not in parameters:
                raise ValueError(f"Cut: a parameter of shape {tuple(value.shape)} has no place")
            return parameters.get(value)
        tuples = [x for x in value.inputs if isinstance(x, TensorTuple)]
        if tuples:
            return self.of[tuples[0]]  # a tuple is not sent: what takes it apart is where it is
        return max((place for x in value.inputs if (place := self.of[x]) is not None), default=None)

    def _edges(self) -> list[Edge]:
        """In the order in which all ranks go through them."""
        needed: dict[Any, dict[int, bool]] = {}
        for value in self.order:
            place = self.of[value]
            for x in value.inputs:
                if place is not None and self.of[x] not in (None, place):
                    users = needed.setdefault(x, {})
                    users[place] = users.get(place, False) or (x.requires_grad and value.requires_grad)
        edges: list[Edge] = []
        for value in self.order:
            for target, grad in sorted(needed.get(value, {}).items()):
                edges.append(Edge(value, self.of[value] or 0, target, grad, len(edges) + 1))
        if len(edges) >= MAX_TAG:
            raise ValueError(f"Cut: {len(edges)} edges between ranks, expected fewer than {MAX_TAG}")
        return edges

    def edges_at(self) -> dict[Any, list[Edge]]:
        """{value: the edges that begin there}"""
        found: dict[Any, list[Edge]] = {}
        for edge in self.edges:
            found.setdefault(edge.value, []).append(edge)
        return found

    def needed_by(self, rank: int) -> set[Any]:
        """What a rank computes: what is placed there, and what is everywhere and needed there."""
        needed: set[Any] = set()
        for value in reversed(self.order):
            if self.of[value] == rank or value in needed:
                needed.add(value)
                needed.update(x for x in value.inputs if self.of[x] is None)
        return needed
