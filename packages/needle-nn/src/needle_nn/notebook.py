"""What notebooks show: modules as trees that fold, loaders as a table, training as curves. Colours are those of the page."""

from collections.abc import Mapping, Sequence
from typing import Any

from needle.autograd import Tensor
from needle_nn.reporting.markup import Markup, tag

MOST = 400  # modules and tensors of a tree; of a larger one the rest is counted
OPEN = 2  # levels that are not folded
FONT = "font-family:sans-serif;font-size:13px"
INDENT = "margin-left:1.1em;border-left:1px solid rgba(128,128,128,.4);padding-left:.6em"
#: Of charts, whose lines have colours of their own.
CHARTS = """
.needle-charts .charts { display: flex; flex-wrap: wrap; gap: 12px }
.needle-charts figure { margin: 0; width: 420px; max-width: 100% }
.needle-charts figcaption { font: bold 13px sans-serif }
.needle-charts svg { width: 100%; overflow: visible }
.needle-charts text { fill: currentColor; font: 12px sans-serif; opacity: .8 }
.needle-charts .grid { stroke: currentColor; opacity: .15 }
"""


def module_html(module: Any) -> str:
    """A module, what is in it, and how many parameters each part has."""
    left = [MOST]
    tree = _module("", module, {id(module)}, left, 0)
    rest = tag("div", f"and {-left[0]:,} more", style="opacity:.7") if left[0] < 0 else Markup("")
    return tag("div", tree, rest, style=FONT)


def _module(name: str, module: Any, seen: set[int], left: list[int], level: int) -> Markup:
    """A module with its parts, each shown once."""
    count = sum(int(p.size) for p in module.parameters())
    settings = "" if (shown := module.extra_repr()) is None else str(shown)
    title = [tag("span", f"{name}: ") if name else "", tag("b", type(module).__name__), f"({settings})"]
    title.append(tag("span", f" · {count:,} parameters" if count else "", style="opacity:.7"))
    parts = []
    for part, value, role in module._members():
        left[0] -= 1
        if left[0] < 0:
            continue
        if id(value) in seen:
            parts.append(tag("div", f"{part}: ", tag("b", type(value).__name__), ", shown above", style="opacity:.7"))
            continue
        seen.add(id(value))
        tensor = isinstance(value, Tensor)
        parts.append(_tensor(part, value, role) if tensor else _module(part, value, seen, left, level + 1))
    if not parts:
        return tag("div", *title, style="padding-left:1.05em")
    opened = {"open": "open"} if level < OPEN else {}
    return tag("details", tag("summary", *title), tag("div", *parts, style=INDENT), **opened)


def _tensor(name: str, value: Tensor, role: str) -> Markup:
    kind = "" if type(value).__name__ == "Parameter" else f" · {role} buffer"
    frozen = " · frozen" if not kind and not value.requires_grad else ""
    about = f" {value.shape} {value.dtype}, {value.device}{kind}{frozen}"
    return tag("div", name, tag("span", about, style="opacity:.7"), style="padding-left:1.05em")


def loader_html(loader: Any) -> str:
    """What a loader gives: nothing is drawn or read from its dataset for it."""
    rows: dict[str, Any] = {"dataset": _described(loader.dataset)}
    rows["batches"] = (
        f"{len(loader):,}" if loader.sampler is not None or loader.batch_sampler is not None else "unknown"
    )
    rows["batch size"] = loader.batch_size if loader.batch_sampler is None else "that of the batch sampler"
    rows["order"] = "shuffled" if loader.shuffle else type(loader.batch_sampler or loader.sampler).__name__
    if loader.sampler is None and loader.batch_sampler is None:
        rows["order"] = "as the dataset gives items"
    rows["workers"] = loader.num_workers or "none"
    given = {"last batch": "dropped where short" if loader.drop_last else None, "seed": loader.seed}
    rows |= {
        name: value
        for name, value in (given | {"device": loader.device, "dtype": loader.dtype}).items()
        if value is not None
    }
    cells = [
        tag("tr", tag("th", name, style="text-align:left"), tag("td", value, style="text-align:left"))
        for name, value in rows.items()
    ]
    return tag("div", tag("b", type(loader).__name__), tag("table", *cells, style=FONT), style=FONT)


def _described(dataset: Any) -> str:
    return (
        f"{type(dataset).__name__} of {len(dataset):,} items" if hasattr(dataset, "__len__") else type(dataset).__name__
    )


def history_html(rows: Sequence[Mapping[str, Any]]) -> str:
    """Curves of the loss, of accuracies and of the learning rate, and the last epoch's numbers."""
    from needle_nn.report import curves

    if not rows:
        return tag("div", "no epoch so far", style=FONT)
    last = ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in rows[-1].items()
        if name != "kind"
    )
    return tag(
        "div",
        tag("style", CHARTS),
        tag("div", curves(rows), class_="needle-charts"),
        tag("div", last, style=FONT + ";opacity:.8"),
    )
