"""Pictures of graphs: DOT text, and SVG by Needle's own layered layout."""

import bisect
import functools
import html
import itertools
import re
import unicodedata
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from needle.autograd import Tensor, TensorTuple, Value, find_topo_sort
from needle.capturing import CapturedPlan
from needle.plan_drawing import plan_boxes

__all__ = ["Graph", "draw_graph"]

CHAR, LINE, PAD, GAP_X, GAP_Y, HEAD, MARGIN = 7.0, 16, 10, 22, 34, 46, 16  # pixels
PLACES = ("#e6effb", "#fdeede", "#e4f4e6", "#f5e8f6", "#fbf6da", "#e3f4f4", "#fbe7e7", "#ececf5")
FILL = {"op": "#eef3fb", "parameter": "#dff3e0", "array": "#dff3e0", "constant": "#f1f1ef", "more": "#ffffff"}
STROKE = {"op": "#5b7fb5", "parameter": "#4a9a55", "array": "#4a9a55", "constant": "#9a9a94", "more": "#999999"}
#: What the line on top counts: kinds and their plurals.
OF_TENSORS = (("parameter", "parameters"), ("constant", "constants"), ("op", "operations"))
OF_PLANS = (("array", "arrays"), ("constant", "constants"), ("op", "calls"))


class Node(NamedTuple):
    """A box: its kind (a key of FILL), the lines in it, and what a mouse over it shows."""

    kind: str
    title: str
    detail: str
    hint: str
    place: int | None = None  # where it is computed, if that was said


def draw_graph(
    outputs: Any, path: Any = None, *, names: Any = None, max_nodes: int = 500, places: Any = None
) -> "Graph":
    """The graph that `outputs` were computed by, as a `Graph`: shown by notebooks, or saved as .svg, .html or .dot.

    Nothing is computed: values that are lazy say so, and data dropped after backward stays dropped. Of a captured function's plan
    the calls are drawn, with the arrays they write: %0, %1, ... as in `print(plan)`, and their places in the arena.

    Parameters
    ----------
    outputs : a Tensor or TensorTuple, or a list of them; or one of `captured.plans`
    path : where to save the picture, if at all
    names : {name: tensor}, labels for the leaves (or any other nodes)
    max_nodes : how many nodes to draw, those closest to the outputs; the others are counted in one box
    places : {tensor: number} of a graph that is computed in several places: each has a colour, and arrows between two are dashed

    >>> import needle as ndl
    >>> x, w = ndl.Tensor([[1.0, 2.0]], requires_grad=False), ndl.Tensor([[3.0], [4.0]])
    >>> draw_graph(ndl.relu(x @ w), names={"x": x, "w": w})
    Graph of 4 nodes and 3 edges: constant x, parameter w, MatMul, ReLU
    """
    if isinstance(outputs, CapturedPlan):
        return _finished(_plan_graph(outputs.plan, names or {}, max_nodes), path)
    roots = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    labels = {id(_value(value, f"name {name!r}")): str(name) for name, value in dict(names or {}).items()}
    if not roots or max_nodes < 1:
        raise ValueError(f"draw_graph: {len(roots)} outputs, max_nodes {max_nodes}: expected 1 or more of both")
    order = find_topo_sort([_value(root, "an output") for root in roots])
    kept = order if len(order) <= max_nodes else _closest(roots, max_nodes, order)
    place = {id(value): i for i, value in enumerate(kept)}
    where = {id(_value(value, "a key of places")): int(number) for value, number in dict(places or {}).items()}
    nodes = [_node(value, labels.get(id(value)), where.get(id(value))) for value in kept]
    rest = len(nodes)
    edges: list[tuple[int, int]] = []
    for i, value in enumerate(kept):
        sources = [place.get(id(x), rest) for x in value.inputs]
        edges += [(a, i) for k, a in enumerate(sources) if a < rest or a not in sources[:k]]
    if len(kept) < len(order):
        nodes.append(Node("more", f"… {len(order) - len(kept)} more nodes", "", "raise max_nodes to see them"))
    return _finished(Graph(nodes, edges), path)


def _finished(graph, path):
    if path is not None:
        graph.save(path)
    return graph


def _plan_graph(plan: Any, names: dict[str, Any], max_nodes: int) -> "Graph":
    if max_nodes < 1 or not plan.calls:
        raise ValueError(f"draw_graph: {len(plan.calls)} calls, max_nodes {max_nodes}: expected 1 or more of both")
    boxes, edges = plan_boxes(plan, {name: _value(x, f"name {name!r}") for name, x in dict(names).items()}, max_nodes)
    return Graph([Node(kind, _cut(title), _cut(detail), hint) for kind, title, detail, hint in boxes], edges, OF_PLANS)


def _value(value: Any, what: str) -> Value:
    if not isinstance(value, Value):
        raise TypeError(f"draw_graph: {what} is a {type(value).__name__}, expected a Tensor")
    return value


def _closest(roots: list, count: int, order: list) -> list:
    """The `count` values nearest to the roots, in the order given."""
    queue, seen = deque(roots), {id(root) for root in roots}
    found: set[int] = set()
    while queue and len(found) < count:
        value = queue.popleft()
        found.add(id(value))
        for x in value.inputs:
            if id(x) not in seen:
                seen.add(id(x))
                queue.append(x)
    return [value for value in order if id(value) in found]


# ---- What a box says --------------------------------------------------------------------------


def _node(value: Value, label: str | None, place: int | None) -> Node:
    known = _known(value)
    detail = "lazy" if known is None else ", ".join([f"{s} {dtype}" for s, dtype, _ in known[:1]])
    if known is not None and isinstance(value, TensorTuple):
        same = len({(s, dtype) for s, dtype, _ in known}) == 1
        detail = f"{len(known)} × {detail}" if same else f"{len(known)}: " + ", ".join([str(s) for s, _, _ in known])
    if known:
        detail = f"{detail} · {_bytes(sum([n for _, _, n in known]))}"
    if value.op is not None:
        kind, name = "op", type(value.op).__name__ + _scalar(value.op)
        title = name if label is None else f"{label} = {name}"
    else:
        kind = "parameter" if value.requires_grad else "constant"
        title = kind if label is None else label
    state = " (dropped after backward)" if known is not None and value.cached_data is None else ""
    detail = detail if place is None else f"{place} | {detail}"
    return Node(kind, _cut(title), _cut(detail), f"{title}: {detail}{state}{_settings(value.op)}", place)


def _known(value: Value) -> list[tuple[str, str, int]] | None:
    """(shape, dtype, bytes) of each array of a value; None if it is lazy. Computes nothing."""
    known = value.known
    if known is None:
        return None
    specs = [known] if isinstance(value, Tensor) else known
    made = []
    for shape, dtype, _ in specs:
        size = functools.reduce(lambda a, b: a * b, shape, 1)
        made.append((str(tuple(shape)), str(dtype), size * dtype.itemsize))
    return made


def _bytes(count: int) -> str:
    """1536 -> 1.5 kB"""
    amount, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 999.5 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:.3g} {units[0]}"


def _scalar(op: Any) -> str:
    value = getattr(op, "scalar", None)
    return f" {value:.4g}" if isinstance(value, (int, float)) else ""


def _settings(op: Any) -> str:
    """What an op was made with, as ', axes=(1,)'."""
    slots = [name for cls in type(op).__mro__ for name in getattr(cls, "__slots__", ())]
    found = {**{name: getattr(op, name, None) for name in slots}, **getattr(op, "__dict__", {})}
    return "".join([f", {name}={_cut(repr(value), 60)}" for name, value in found.items()])


def _cut(text: str, length: int = 44) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


# ---- The picture --------------------------------------------------------------------------


class Graph:
    """Boxes and arrows: `nodes` in an order of computation, `edges` as pairs of places in it, and pictures of them."""

    def __init__(self, nodes: list[Node], edges: list[tuple[int, int]], counted: tuple = OF_TENSORS) -> None:
        self.nodes, self.edges, self.counted = nodes, edges, counted

    def __repr__(self) -> str:
        named = [n.title if n.kind == "op" or n.title == n.kind else f"{n.kind} {n.title}" for n in self.nodes[:8]]
        more = ", ..." if len(self.nodes) > 8 else ""
        return f"Graph of {len(self.nodes)} nodes and {len(self.edges)} edges: {', '.join(named)}{more}"

    @property
    def dot(self) -> str:
        """The graph in Graphviz' language."""
        lines = ["digraph needle {", '  node [shape=box, style="filled,rounded", fontname="sans-serif", fontsize=12];']
        for i, node in enumerate(self.nodes):
            label = "\\n".join([_quoted(text) for text in (node.title, node.detail) if text])
            colours = f'fillcolor="{_fill(node)}", color="{STROKE[node.kind]}"'
            lines.append(f'  n{i} [label="{label}", tooltip="{_quoted(node.hint)}", {colours}];')
        arrows = [f"  n{a} -> n{b}{' [style=dashed]' if self.crosses(a, b) else ''};" for a, b in self.edges]
        return "\n".join([*lines, *arrows, "}", ""])

    def crosses(self, a: int, b: int) -> bool:
        """Whether an edge goes from one place to another."""
        places = (self.nodes[a].place, self.nodes[b].place)
        return None not in places and places[0] != places[1]

    @functools.cached_property
    def svg(self) -> str:
        """The graph as an SVG picture, inputs on top."""
        return _svg(self)

    def _repr_svg_(self) -> str:
        return self.svg

    @property
    def html(self) -> str:
        """The picture as a page of its own: drag to move it, turn the wheel to zoom."""
        return _PAGE.replace("SVG", self.svg, 1)

    def save(self, path: Any) -> None:
        """Write the picture; the suffix says how: .svg, .html or .dot."""
        file = Path(path)
        if file.suffix not in (".svg", ".html", ".dot"):
            raise ValueError(f"save: {file.name}: expected a name that ends in .svg, .html or .dot")
        file.write_text(getattr(self, file.suffix[1:]), encoding="utf-8")


_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _escaped(text: str) -> str:
    return html.escape(_NO_XML.sub("?", text))


def _quoted(text: str) -> str:
    return _NO_XML.sub("?", text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _width(text: str) -> float:
    return CHAR * sum([2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text])


# ---- Layout --------------------------------------------------------------------------


class _Layout:
    """Sugiyama's method: a layer per step of computation, few crossings, neighbours below each other.

    Vertices are the nodes, and a bend in every layer that edges of a node pass; edges from the same node share their bends.
    """

    def __init__(self, widths: list[float], edges: list[tuple[int, int]]) -> None:
        self.widths, nodes = list(widths), len(widths)
        early, self.rank = _ranks(nodes, edges)
        self.links: list[tuple[int, int, tuple[int, int] | None]] = []  # from, to, and the edge if it ends here
        bends: dict[tuple[int, int], int] = {}
        for a, b in edges:
            upper = a
            for r in range(self.rank[a] + 1, self.rank[b]):
                if (a, r) not in bends:
                    bends[a, r] = len(self.widths)
                    self.links.append((upper, bends[a, r], None))
                    self.widths.append(0.0)
                    self.rank.append(r)
                upper = bends[a, r]
            self.links.append((upper, b, (a, b)))
        self.x = [0.0] * len(self.widths)
        self.up: list[dict[int, float]] = [{} for _ in self.widths]  # neighbours, and how hard they pull
        self.down: list[dict[int, float]] = [{} for _ in self.widths]
        for u, v, edge in self.links:
            # the longest path and long edges should be straight; what joins from the side gives way
            pull = 4.0 if u >= nodes and v >= nodes else 1.0 if edge and early[edge[0]] == early[edge[1]] - 1 else 0.05
            self.up[v][u] = self.down[u][v] = pull
        self.layers: list[list[int]] = [[] for _ in range(max(self.rank) + 1)]
        for v, r in enumerate(self.rank):
            self.layers[r].append(v)
        self.sort()
        self.place()

    def sort(self) -> None:
        """Order every layer by the mean place of its neighbours, up and down in turn; keep the order with fewest crossings."""
        best, fewest = [list(layer) for layer in self.layers], self.crossings()
        for turn in range(12):
            near, layers = (self.up, self.layers) if turn % 2 == 0 else (self.down, self.layers[::-1])
            place = {v: i for layer in self.layers for i, v in enumerate(layer)}
            for layer in layers:
                mean = {v: sum([place[u] for u in near[v]]) / len(near[v]) if near[v] else place[v] for v in layer}
                layer.sort(key=mean.__getitem__)
                place.update({v: i for i, v in enumerate(layer)})
            count = self.crossings()
            if count < fewest:
                best, fewest = [list(layer) for layer in self.layers], count
        self.layers = best

    def crossings(self) -> int:
        count = 0
        for upper, lower in itertools.pairwise(self.layers):
            place = {v: i for i, v in enumerate(lower)}
            seen: list[int] = []
            for u in upper:
                ends = sorted([place[v] for v in self.down[u]])
                for end in ends:
                    count += len(seen) - bisect.bisect_right(seen, end)
                for end in ends:
                    bisect.insort(seen, end)
        return count

    def place(self) -> None:
        """Move every vertex towards the mean of its neighbours, as far as the others of its layer allow."""
        for layer in self.layers:
            self.x_of(layer, [0.0] * len(layer), [1.0] * len(layer))
        for turn in range(48):
            for layer in self.layers if turn % 2 == 0 else self.layers[::-1]:
                wish, weight = [], []
                for v in layer:
                    near = {**self.up[v], **self.down[v]} if turn >= 8 else (self.up, self.down)[turn % 2][v]
                    weight.append(sum(near.values()) or 0.01)
                    wish.append(sum([self.x[u] * pull for u, pull in near.items()]) / weight[-1] if near else self.x[v])
                self.x_of(layer, wish, weight)

    def x_of(self, layer: list[int], wish: list[float], weight: list[float]) -> None:
        """The places nearest to the wishes (least squares) that keep order and gaps: pool adjacent violators."""
        offsets = [0.0]
        for u, v in itertools.pairwise(layer):
            offsets.append(offsets[-1] + (self.widths[u] + self.widths[v]) / 2 + GAP_X)
        blocks: list[tuple[float, float, int]] = []  # place, weight, how many share it
        for at, offset, w in zip(wish, offsets, weight, strict=True):
            blocks.append((at - offset, w, 1))
            while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
                (a, p, m), (b, q, n) = blocks[-2:]
                blocks[-2:] = [((a * p + b * q) / (p + q), p + q, m + n)]
        places = itertools.chain.from_iterable([[at] * n for at, _, n in blocks])
        for v, at, offset in zip(layer, places, offsets, strict=True):
            self.x[v] = at + offset


def _ranks(count: int, edges: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Layers of the nodes: as early as their inputs, and as late as those that need them allow. Edges are sorted by their ends."""
    early = [0] * count
    for a, b in edges:
        early[b] = max(early[b], early[a] + 1)
    late: dict[int, int] = {}
    for a, b in reversed(edges):
        rank = late.get(b, early[b]) - 1
        late[a] = min(late.get(a, rank), rank)
    return early, [late.get(v, early[v]) for v in range(count)]


# ---- SVG --------------------------------------------------------------------------


def _svg(graph: Graph) -> str:
    nodes = graph.nodes
    heights = [2 * PAD + LINE * (2 if node.detail else 1) - 4 for node in nodes]
    layout = _Layout([max(_width(n.title), _width(n.detail) * 0.92, 40) + 2 * PAD for n in nodes], graph.edges)
    x, rank, count = layout.x, layout.rank, len(nodes)
    shift = MARGIN - min([x[v] - layout.widths[v] / 2 for v in range(len(x))])
    x = [at + shift for at in x]
    tops, y = [], float(HEAD + MARGIN)
    for r, layer in enumerate(layout.layers):
        tops.append(y)
        lean = max([abs(x[u] - x[v]) for u, v, _ in layout.links if rank[u] == r] or [0])
        y += max([heights[v] for v in layer if v < count] or [0]) + GAP_Y + min(lean * 0.08, 60)
    width = max([at + layout.widths[v] / 2 for v, at in enumerate(x)] + [330]) + MARGIN
    ends = [
        top + max([heights[v] for v in layer if v < count] or [0])
        for top, layer in zip(tops, layout.layers, strict=True)
    ]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {ends[-1] + MARGIN:.0f}" width="{width:.0f}"'
        f' height="{ends[-1] + MARGIN:.0f}" style="max-width:100%;height:auto" font-family="Helvetica, Arial, sans-serif">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0.8 L8 4 L0 7.2 z" fill="#8a8f98"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        _legend(nodes, graph.counted),
    ]
    arriving: list[list[int]] = [[] for _ in x]
    for u, v, _ in layout.links:
        arriving[v].append(u)
    for sources in arriving:
        sources.sort(key=x.__getitem__)
    for u, v, edge in layout.links:
        k, n = arriving[v].index(u), len(arriving[v])
        arriving[v][k] = -1  # an input that is used twice arrives twice
        x0, y0, x1, y1 = x[u], tops[rank[u]] + heights[u] if u < count else ends[rank[u]], x[v], tops[rank[v]]
        x1 += (k - (n - 1) / 2) * min(16, (layout.widths[v] - 2 * PAD) / n) if v < count else 0
        middle = (ends[rank[u]] + y1) / 2
        path = f"M{x0:.1f} {y0:.1f} V{ends[rank[u]]:.1f} C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
        path += "" if v < count else f" V{ends[rank[v]]:.1f}"
        arrow = f' marker-end="url(#arrow)" data-edge="{edge[0]}-{edge[1]}"' if edge else ""
        crosses = edge is not None and graph.crosses(*edge)
        line = (
            'stroke="#c2410c" stroke-width="1.8" stroke-dasharray="5 3"'
            if crosses
            else 'stroke="#8a8f98" stroke-width="1.2"'
        )
        lines.append(f'<path d="{path}" fill="none" {line}{arrow}/>')
    for v, node in enumerate(nodes):
        lines.append(_box(node, x[v], tops[rank[v]], layout.widths[v], heights[v]))
    return "\n".join([*lines, "</svg>", ""])


def _fill(node: Node) -> str:
    return FILL[node.kind] if node.place is None else PLACES[node.place % len(PLACES)]


def _box(node: Node, x: float, y: float, width: float, height: float) -> str:
    dashed = ' stroke-dasharray="4 3"' if node.kind == "more" else ""
    text = f'<text x="{x:.1f}" y="{y + PAD + 10}" font-size="12" font-weight="600" fill="#1f2430">{_escaped(node.title)}</text>'
    if node.detail:
        text += (
            f'<text x="{x:.1f}" y="{y + PAD + 10 + LINE}" font-size="11" fill="#555b66">{_escaped(node.detail)}</text>'
        )
    return (
        f'<g class="node" text-anchor="middle"><title>{_escaped(node.hint)}</title><rect x="{x - width / 2:.1f}" y="{y:.1f}"'
        f' width="{width:.1f}" height="{height}" rx="6" fill="{_fill(node)}" stroke="{STROKE[node.kind]}"{dashed}/>{text}</g>'
    )


def _legend(nodes: list[Node], counted: tuple) -> str:
    """A line on top: a chip for each kind, and how many of it there are."""
    made, x = [], float(MARGIN)
    for kind, plural in counted:
        count = sum([node.kind == kind for node in nodes])
        text = f"{count} {plural if count != 1 else plural[:-1]}"
        made.append(
            f'<rect x="{x}" y="{MARGIN}" width="14" height="14" rx="3" fill="{FILL[kind]}" stroke="{STROKE[kind]}"/>'
        )
        made.append(f'<text x="{x + 20}" y="{MARGIN + 11}" font-size="12" fill="#555b66">{text}</text>')
        x += 34 + _width(text)
    return f'<g class="legend">{"".join(made)}</g>'


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Needle graph</title>
<style>body { margin: 0; overflow: hidden } svg { width: 100vw; height: 100vh !important; cursor: grab }</style></head>
<body>
SVG<script>
const svg = document.querySelector("svg"), box = svg.viewBox.baseVal;
const scale = () => 1 / svg.getScreenCTM().a;
svg.addEventListener("pointermove", e => {
  if (e.buttons) { box.x -= e.movementX * scale(); box.y -= e.movementY * scale(); }
});
svg.addEventListener("wheel", e => {
  e.preventDefault();
  const at = new DOMPoint(e.clientX, e.clientY).matrixTransform(svg.getScreenCTM().inverse()), f = Math.exp(e.deltaY / 500);
  box.x = at.x - (at.x - box.x) * f; box.y = at.y - (at.y - box.y) * f; box.width *= f; box.height *= f;
}, { passive: false });
</script></body></html>
"""
