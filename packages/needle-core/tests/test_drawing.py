"""needle.drawing: every node and edge, in DOT and in SVG, and nothing computed for it."""

import doctest
import gc
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import needle as ndl
from needle import drawing
from needle.custom import operator
from needle.drawing import draw_graph

SVG = "{http://www.w3.org/2000/svg}"


def leaf(*shape, requires_grad=True):
    return ndl.Tensor(np.ones(shape, "float32"), requires_grad=requires_grad)


def mlp():
    x, h = leaf(4, 3, requires_grad=False), None
    for n, m in [(3, 5), (5, 5), (5, 2)]:
        h = ndl.relu((x if h is None else h) @ leaf(n, m) + leaf(m))
    return (h * h).sum() / 4


def rnn(steps=12):
    xs, w, u, h = ndl.split(leaf(steps, 2, 3), 0), leaf(3, 4), leaf(4, 4), leaf(2, 4)
    for x in xs:
        h = ndl.tanh(x @ w + h @ u)
    return h


def chain(n=40):
    y = leaf(3)
    for _ in range(n):
        y = y * 2 + ndl.sin(y)
    return y


def dense():
    """Every layer sees all before it."""
    seen = [leaf(2)]
    for _ in range(8):
        seen.append(ndl.tanh(ndl.concatenate(seen).sum() * seen[-1]))
    return seen[-1]


def gradient():
    y, w = mlp(), None
    y.backward()
    w = y
    while w.inputs:
        w = w.inputs[-1]
    return [w.grad, y]


GRAPHS = {
    "leaf": lambda: leaf(2, 3),
    "square": lambda: (lambda x: x * x)(leaf(2)),
    "mlp": mlp,
    "rnn": rnn,
    "chain": chain,
    "dense": dense,
    "tuple": lambda: ndl.split(leaf(3, 2), 0),
    "gradient": gradient,
    "two outputs": lambda: (lambda x: [ndl.exp(x), ndl.log(x)])(leaf(2)),
    "unrelated outputs": lambda: [ndl.exp(leaf(2)), ndl.log(leaf(3))],
}


def expected(outputs):
    """Nodes in order and edges between their places, by way of the course's function."""
    order = ndl.autograd.find_topo_sort(outputs if isinstance(outputs, list) else [outputs])
    place = {id(v): i for i, v in enumerate(order)}
    return order, sorted((place[id(x)], place[id(v)]) for v in order for x in v.inputs)


def boxes(svg):
    """(left, top, right, bottom) of every node's box."""
    found = []
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        if group.get("class") == "node":
            x, y, w, h = [float(group.find(f"{SVG}rect").get(k)) for k in ("x", "y", "width", "height")]
            found.append((x, y, x + w, y + h))
    return found


@pytest.mark.parametrize("name", GRAPHS)
def test_dot_has_every_node_and_edge(name):
    outputs = GRAPHS[name]()
    order, edges = expected(outputs)
    dot = draw_graph(outputs).dot
    assert dot.startswith("digraph needle {\n")
    assert dot.endswith("}\n")
    labels = re.findall(r'^  n(\d+) \[label="(.*?)"', dot, re.M)
    assert [int(i) for i, _ in labels] == list(range(len(order)))
    for value, (_, label) in zip(order, labels, strict=True):
        kind = "parameter" if value.requires_grad else "constant"
        assert label.startswith(kind if value.op is None else type(value.op).__name__)
    assert sorted((int(a), int(b)) for a, b in re.findall(r"^  n(\d+) -> n(\d+);$", dot, re.M)) == edges


@pytest.mark.parametrize("name", GRAPHS)
def test_svg_has_every_node_and_edge(name):
    outputs = GRAPHS[name]()
    order, edges = expected(outputs)
    svg = draw_graph(outputs).svg
    assert len(boxes(svg)) == len(order)
    ends = [p.get("data-edge") for p in ET.fromstring(svg).iter(f"{SVG}path") if p.get("data-edge")]
    assert sorted(tuple(map(int, end.split("-"))) for end in ends) == edges


@pytest.mark.parametrize("name", GRAPHS)
def test_svg_boxes_do_not_overlap_and_fit(name):
    svg = draw_graph(GRAPHS[name]()).svg
    found = boxes(svg)
    for i, (l1, t1, r1, b1) in enumerate(found):
        for l2, t2, r2, b2 in found[:i]:
            assert r1 < l2 or r2 < l1 or b1 < t2 or b2 < t1
    _, _, width, height = map(float, ET.fromstring(svg).get("viewBox").split())
    assert min(box[0] for box in found) >= 0
    assert min(box[1] for box in found) >= 30  # below the legend
    assert max(box[2] for box in found) <= width
    assert max(box[3] for box in found) <= height


def rects_hit(path, found):
    """Boxes whose inside a path's vertical and end points lie in."""
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", path)]
    x0, y0, below, _, _, x1, _, _, y1, *_ = [numbers[0], numbers[1], numbers[2], *numbers[3:]]
    points = [(x0, (y0 + below) / 2), (x0, below), (x1, y1)]
    return [b for b in found for x, y in points if b[0] < x < b[2] and b[1] + 0.2 < y < b[3] - 0.2]


@pytest.mark.parametrize("name", ["mlp", "rnn", "dense"])
def test_edges_pass_between_boxes(name):
    svg = draw_graph(GRAPHS[name]()).svg
    found = boxes(svg)
    paths = [
        p.get("d") for p in ET.fromstring(svg).iter(f"{SVG}path") if p.get("d").startswith("M") and p.get("stroke")
    ]
    assert paths
    assert [rects_hit(path, found) for path in paths] == [[]] * len(paths)


def test_an_input_that_is_used_twice_arrives_twice():
    paths = [
        p.get("d") for p in ET.fromstring(draw_graph(GRAPHS["square"]()).svg).iter(f"{SVG}path") if p.get("data-edge")
    ]
    assert len(set(paths)) == 2


@pytest.mark.parametrize(
    ("nodes", "edges", "crossings"),
    [
        (4, [(1, 2), (0, 3)], 0),  # crossed as given
        (4, [(0, 2), (1, 2), (0, 3), (1, 3)], 1),  # cannot be avoided
        (6, [(2, 3), (1, 4), (0, 5)], 0),
    ],
)
def test_crossings(nodes, edges, crossings):
    assert drawing._Layout([50.0] * nodes, edges).crossings() == crossings


@pytest.mark.parametrize("name", GRAPHS)
def test_inputs_are_above(name):
    graph = draw_graph(GRAPHS[name]())
    found = boxes(graph.svg)
    assert all(found[a][3] < found[b][1] for a, b in graph.edges)


# ---- Plans --------------------------------------------------------------------------


def captured(function, *args):
    made = ndl.capture(function)
    for _ in range(2):
        made(*args)
    (plan,) = made.plans
    return plan


def small_plan():
    x, w = leaf(4, 3, requires_grad=False), leaf(3, 2)
    return captured(lambda x: ndl.relu(x @ w) * 2 + x.sum(), x), {"x": x, "w": w}


def step_plan():
    x, w = leaf(200, 30, requires_grad=False), leaf(30, 40)

    def step(x):
        loss = ndl.tanh(x @ w).sum()
        loss.backward()
        w.data = w.data - 0.1 * w.grad.data
        return loss

    return captured(step, x), {"x": x}


def joined_plan():
    """A buffer that two calls write, half each."""
    x = leaf(2, 3, requires_grad=False)
    return captured(lambda x: ndl.exp(ndl.concatenate([ndl.sin(x), ndl.cos(x)])), x), {"x": x}


PLANS = {"small": small_plan, "step": step_plan, "joined": joined_plan}


def without_grad(make):
    with ndl.no_grad():
        return make()


@pytest.mark.parametrize("name", PLANS)
def test_plans(name):
    plan, names = PLANS[name]() if name == "step" else without_grad(PLANS[name])
    graph = draw_graph(plan, names=names)
    calls = [node for node in graph.nodes if node.kind == "op"]
    assert [node.title.split()[0] for node in calls] == [call.verb for call in plan.plan.calls]
    assert [n.title for n in graph.nodes if n.kind == "array" and n.title in names]
    assert all(a < b for a, b in graph.edges) and graph.edges == sorted(graph.edges, key=lambda edge: edge[1])
    found = boxes(graph.svg)
    assert len(found) == len(graph.nodes)
    assert all(found[a][3] < found[b][1] for a, b in graph.edges)
    ends = [p.get("data-edge") for p in ET.fromstring(graph.svg).iter(f"{SVG}path") if p.get("data-edge")]
    assert sorted(tuple(map(int, end.split("-"))) for end in ends) == sorted(graph.edges)
    assert f"{len(calls)} calls" in graph.svg and "array" in graph.svg
    assert all("test_drawing.py:" in node.hint for node in calls)


def test_edges_of_a_plan():
    graph = draw_graph(*without_grad(small_plan)[:1], names=None)
    named = [node.title for node in graph.nodes]
    edges = {(named[a], named[b]) for a, b in graph.edges}
    assert {("matmul", "unary relu"), ("unary relu", "binary multiply"), ("binary multiply", "binary add")} <= edges
    assert ("reduce sum", "binary add") in edges
    assert [n.detail.rpartition(" · ")[2] for n in graph.nodes if n.title == "binary add"] == ["result"]
    assert "arena 0" in [n.detail.rpartition(" · ")[2] for n in graph.nodes]


def test_a_buffer_written_in_parts_comes_from_all_of_them():
    graph = draw_graph(without_grad(joined_plan)[0])
    last = len(graph.nodes) - 1
    assert graph.nodes[last].title == "unary exp"
    assert len([a for a, b in graph.edges if b == last]) == 2


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_the_last_calls_of_a_plan(limit):
    plan, _ = without_grad(small_plan)
    graph = draw_graph(plan, max_nodes=limit)
    hidden = len(plan.plan.calls) - limit
    assert [node.kind for node in graph.nodes].count("op") == limit
    assert graph.nodes[0].title == f"… {hidden} more calls"
    from_rest = [edge for edge in graph.edges if edge[0] == 0]
    assert from_rest and len(from_rest) == len(set(from_rest))
    assert f"… {hidden} more calls" in graph.svg


# ---- Labels --------------------------------------------------------------------------

X = leaf(2, 3, requires_grad=False)
LABELS = {
    "constant": (X, {}, ("constant", "constant", "(2, 3) float32 · 24 B")),
    "parameter": (leaf(500, 2), {}, ("parameter", "parameter", "(500, 2) float32 · 4 kB")),
    "named": (X, {"input": X}, ("constant", "input", "(2, 3) float32 · 24 B")),
    "op": (ndl.relu(leaf(1)), {}, ("op", "ReLU", "(1,) float32 · 4 B")),
    "scalar op": (leaf() * 0.25, {}, ("op", "MulScalar 0.25", "() float32 · 4 B")),
    "tuple": (ndl.split(leaf(3, 2), 0), {}, ("op", "Split", "3 × (2,) float32 · 24 B")),
    "uneven tuple": (
        ndl.make_tuple(leaf(2), leaf(3)), {}, ("op", "MakeTensorTuple", "2: (2,), (3,) · 20 B"),
    ),
    "integers": (ndl.Tensor(np.zeros(1 << 20, "int64")), {}, ("constant", "constant", "(1048576,) int64 · 8.39 MB")),
}  # fmt: skip


@pytest.mark.parametrize("name", LABELS)
def test_labels(name):
    value, names, want = LABELS[name]
    node = draw_graph(value, names=names).nodes[-1]
    assert (node.kind, node.title, node.detail) == want


def test_named_op():
    y = ndl.exp(leaf(2))
    assert draw_graph(y, names={"y": y}).nodes[-1].title == "y = Exp"


def test_settings_of_an_op_are_in_the_hint():
    assert draw_graph(leaf(2, 3).sum((1,))).nodes[-1].hint == "Summation: (2,) float32 · 8 B, axes=(1,), keepdims=False"


def test_lazy_values_are_not_computed():
    computed = []

    @operator
    def watched(x):
        computed.append(1)
        return x + 1

    with ndl.lazy_mode():
        y = ndl.tuple_get_item(ndl.split(watched(leaf(2, 3)), 0), 0) * 2
    graph = draw_graph(y)
    assert [n.detail for n in graph.nodes] == ["(2, 3) float32 · 24 B", "lazy", "lazy", "lazy", "lazy"]
    assert "lazy" in graph.svg
    assert computed == []
    assert y.shape == (3,)
    assert computed == [1]


def test_dropped_values_stay_dropped():
    x = leaf(20, 30)
    y = ndl.split(ndl.exp(ndl.sin(x)), 0)[0].sum()
    y.backward()
    exp = y.inputs[0].inputs[0].inputs[0]
    assert exp.cached_data is None
    graph = draw_graph(y)
    assert exp.cached_data is None
    node = graph.nodes[2]
    assert (node.title, node.detail) == ("Exp", "(20, 30) float32 · 2.4 kB")
    assert "dropped after backward" in node.hint
    assert "dropped" not in graph.nodes[0].hint


def test_the_picture_does_not_hold_the_graph():
    gc.collect()  # what other tests have left must not go meanwhile
    before = ndl.autograd.TENSOR_COUNTER
    graph = draw_graph(mlp())
    assert before == ndl.autograd.TENSOR_COUNTER
    assert len(graph.svg) > 1000


NASTY = '<b>&"quoted"</b>\\ \x00\n→ 重み'


def test_escaping(tmp_path):
    x = leaf(2)
    graph = draw_graph(ndl.exp(x), names={NASTY: x})
    shown = NASTY.replace("\x00", "?")
    texts = [t.text for t in ET.fromstring(graph.svg).iter(f"{SVG}text")]
    assert shown in texts
    assert "<b>" not in graph.svg
    assert '  n0 [label="<b>&\\"quoted\\"</b>\\\\ ?\\n→ 重み\\n(2,) float32' in graph.dot
    graph.save(tmp_path / "x.html")
    assert "<b>" not in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_long_names_are_cut():
    x = leaf(2)
    node = draw_graph(x, names={"n" * 100: x}).nodes[0]
    assert node.title == "n" * 43 + "…"
    assert "n" * 100 in node.hint


# ---- Size --------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 10, 60])
def test_max_nodes(limit):
    y = chain(1000)  # 3001 nodes
    graph = draw_graph(y, max_nodes=limit)
    assert len(graph.nodes) == limit + 1
    assert graph.nodes[-1].title == f"… {3001 - limit} more nodes"
    assert graph.nodes[limit - 1].title == "EWiseAdd"  # the output is there
    assert f"… {3001 - limit} more nodes" in graph.svg
    from_rest = [edge for edge in graph.edges if edge[0] == limit]
    assert from_rest
    assert len(from_rest) == len(set(from_rest))
    assert len(boxes(graph.svg)) == limit + 1


def test_max_nodes_is_enough():
    assert "more" not in [n.kind for n in draw_graph(chain(3), max_nodes=10).nodes]
    assert "more" in [n.kind for n in draw_graph(chain(3), max_nodes=9).nodes]


def test_a_long_chain():
    y = leaf(1)
    for _ in range(200_000):
        y = y + 1
    assert draw_graph(y).nodes[-1].title == "… 199501 more nodes"


# ---- Files --------------------------------------------------------------------------


def test_files(tmp_path):
    y = mlp()
    graph = draw_graph(y, tmp_path / "g.svg")
    assert (tmp_path / "g.svg").read_text(encoding="utf-8") == graph.svg == graph._repr_svg_()
    graph.save(str(tmp_path / "g.dot"))
    assert (tmp_path / "g.dot").read_text(encoding="utf-8") == graph.dot
    graph.save(tmp_path / "g.html")
    page = (tmp_path / "g.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert graph.svg in page
    assert not re.findall(r'(?:src|href)=|url\("?http|@import', page)  # nothing is fetched


MISTAKES = {
    "suffix": (
        lambda: draw_graph(leaf(1), "g.png"), ValueError, "save: g.png: expected a name that ends in .svg, .html or .dot",
    ),
    "no tensor": (lambda: draw_graph(3), TypeError, "draw_graph: an output is a int, expected a Tensor"),
    "no tensor in names of a plan": (
        lambda: draw_graph(without_grad(small_plan)[0], names={"w": 3}), TypeError,
        "draw_graph: name 'w' is a int, expected a Tensor",
    ),
    "no tensor in names": (
        lambda: draw_graph(leaf(1), names={"w": 3}), TypeError, "draw_graph: name 'w' is a int, expected a Tensor",
    ),
    "no output": (lambda: draw_graph([]), ValueError, "draw_graph: 0 outputs, max_nodes 500: expected 1 or more of both"),
    "max_nodes": (
        lambda: draw_graph(leaf(1), max_nodes=0), ValueError,
        "draw_graph: 1 outputs, max_nodes 0: expected 1 or more of both",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    call, error, message = MISTAKES[name]
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


def test_examples():
    failed, tried = doctest.testmod(drawing)
    assert failed == 0
    assert tried >= 3
