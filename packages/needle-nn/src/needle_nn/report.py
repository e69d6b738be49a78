"""report.html: one page about one run, complete in itself, that opens anywhere and asks no network for anything."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from needle_nn.files import replacing
from needle_nn.reporting.charts import Line, confusion_chart, line_chart
from needle_nn.reporting.markup import Markup, join, tag
from needle_nn.reporting.pictures import data_address

BLUE, ORANGE, GREY = "#2f6fde", "#e0801b", "#6b7280"


class Sample(NamedTuple):
    """A picture (H, W) or (H, W, 3), what it is, what the model took it for, and how sure it was."""

    image: Any
    label: str
    predicted: str
    confidence: float


@dataclass
class Report:
    """What a page shows; parts that are empty are left out.

    Parameters
    ----------
    title, subtitle : the heading
    figures : {name: value}, shown large at the top
    history : rows of metrics.jsonl
    confusion, classes : counts (true, predicted), and the names of the classes
    samples : pictures with predictions
    texts : (caption, prompt, continuation)
    model : what `Module.summary` returned
    settings, environment : tables
    """

    title: str
    subtitle: str = ""
    figures: Mapping[str, str] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    confusion: np.ndarray | None = None
    classes: Sequence[str] = ()
    samples: Sequence[Sample] = ()
    texts: Sequence[tuple[str, str, str]] = ()
    model: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)


def write_report(path: str | Path, report: Report) -> None:
    """Write the page, whole or not at all."""
    with replacing(Path(path)) as unfinished:
        unfinished.write_text(render(report), encoding="utf-8")


def render(report: Report) -> str:
    """The page as text.

    >>> page = render(Report("digits <1>"))
    >>> page[:15], "digits &lt;1&gt;" in page
    ('<!DOCTYPE html>', True)
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", report.title),
        tag("style", Markup(STYLE)),
    )
    figures = [
        tag("div", tag("b", value), tag("span", name), class_="figure") for name, value in report.figures.items()
    ]
    header = tag(
        "header",
        tag("h1", report.title),
        tag("p", report.subtitle, class_="note"),
        tag("div", *figures, class_="figures"),
    )
    sections = [
        _section("Learning curves", curves(report.history)),
        _section("Confusion matrix", _confusion(report)),
        _section("Sample predictions", _samples(report.samples)),
        _section("Generated text", join(_text(*each) for each in report.texts)),
        _section("Model", _model(report.model)),
        tag(
            "div",
            _section("Settings", _table(report.settings)),
            _section("Machine and versions", _table(report.environment)),
            class_="pair",
        ),
    ]
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', header, tag('main', *sections)), lang='en')}\n"


def _section(title: str, content: Markup) -> Markup:
    return tag("section", tag("h2", title), content, id=title.lower().replace(" ", "-")) if content else Markup("")


def curves(history: Sequence[Mapping[str, Any]]) -> Markup:
    """Charts of the loss, the accuracy and the learning rate, over steps."""
    steps = [row for row in history if row.get("kind") == "step"]
    epochs = [row for row in history if row.get("kind") == "epoch"]
    if not steps and not epochs:
        return Markup("")
    loss = [
        Line("each step", _points(steps, "loss"), BLUE, faint=True),
        Line("training", _points(epochs, "loss"), BLUE, dots=True),
        Line("validation", _points(epochs, "valid_loss"), ORANGE, dots=True),
    ]
    values = [y for line in loss for _, y in line.points if y is not None and y > 0]
    wide = bool(values) and max(values) > 30 * min(values)
    charts = [_figure("Loss" + (" (logarithmic)" if wide else ""), line_chart("Loss", loss, log=wide))]
    for name in sorted(
        {key for row in epochs for key in row if key.endswith("accuracy") and not key.startswith("valid_")}
    ):
        lines = [
            Line("training", _points(epochs, name), BLUE, dots=True),
            Line("validation", _points(epochs, f"valid_{name}"), ORANGE, dots=True),
        ]
        charts.append(_figure(name.replace("_", " ").capitalize(), line_chart(name, lines, percent=True)))
    rates = _points(steps, "lr")
    if len({rate for _, rate in rates}) > 1:
        charts.append(_figure("Learning rate", line_chart("Learning rate", [Line("learning rate", rates, GREY)])))
    return tag("div", *charts, class_="charts")


def _points(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    return [(row["step"], row[name]) for row in rows if _is_number(row.get("step")) and _is_number(row.get(name))]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) < 1e300  # and neither nan nor inf


def _figure(caption: str, chart: Markup) -> Markup:
    return tag("figure", tag("figcaption", caption), chart)


def _confusion(report: Report) -> Markup:
    if report.confusion is None:
        return Markup("")
    counts = np.asarray(report.confusion)
    classes = list(report.classes) or [str(i) for i in range(len(counts))]
    mistaken = counts - np.diag(np.diag(counts))
    worst = [divmod(int(i), len(counts)) for i in np.argsort(-mistaken, axis=None, kind="stable")[:3]]
    told = ", ".join(f"{classes[i]} for {classes[j]} ({mistaken[i, j]})" for i, j in worst if mistaken[i, j])
    note = f"{np.trace(counts)} of {counts.sum()} right. " + (
        f"Most often mistaken: {told}." if told else "No mistakes."
    )
    right, rows, columns = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    lines = [tag("tr", *[tag("th", name) for name in ("class", "examples", "found", "right when predicted")])]
    for name, n, found, sure in zip(
        classes, rows, right / np.maximum(rows, 1), right / np.maximum(columns, 1), strict=True
    ):
        numbers = [tag("td", text, class_="number") for text in (n, f"{found:.1%}", f"{sure:.1%}")]
        lines.append(tag("tr", tag("td", name), *numbers))
    matrix = tag("div", confusion_chart(counts, classes), tag("table", *lines, class_="classes"), class_="side")
    return join([tag("p", note, class_="note"), matrix])


def _samples(samples: Sequence[Sample]) -> Markup:
    cards = []
    for sample in samples:
        right = sample.label == sample.predicted
        told = sample.predicted if right else f"{sample.predicted}, is {sample.label}"
        bar = tag("i", tag("i", "", style=f"width:{100 * sample.confidence:.0f}%"), class_="sure")
        picture = tag("img", src=data_address(sample.image), alt=f"{sample.label}", loading="lazy")
        title = f"predicted {sample.predicted} ({sample.confidence:.1%}), is {sample.label}"
        cards.append(
            tag("div", picture, tag("span", told), bar, class_="sample" + ("" if right else " wrong"), title=title)
        )
    return tag("div", *cards, class_="samples") if cards else Markup("")


def _text(caption: str, prompt: str, continuation: str) -> Markup:
    return tag(
        "figure", tag("figcaption", caption), tag("pre", tag("b", prompt), continuation, class_="text"), class_="wide"
    )


def _model(summary: str) -> Markup:
    """The table that `Module.summary` draws with spaces, as one of HTML."""
    lines = summary.splitlines()
    cells = [re.split(r"\s{2,}", line.strip()) for line in lines[:-1]]
    if not cells or any(len(row) != 3 for row in cells):
        return tag("pre", summary) if summary else Markup("")
    rows = [tag("tr", *[tag("th", cell) for cell in cells[0]])]
    for line, (layer, output, parameters) in zip(lines[1:-1], cells[1:], strict=True):
        indent = (len(line) - len(line.lstrip())) / 2
        first = tag("td", layer, style=f"padding-left:{0.6 + 1.1 * indent:.1f}em")
        rows.append(tag("tr", first, tag("td", output), tag("td", parameters, class_="number")))
    return join([tag("table", *rows, class_="model"), tag("p", lines[-1], class_="note")])


def _table(values: Mapping[str, Any]) -> Markup:
    rows = [tag("tr", tag("th", name), tag("td", value)) for name, value in values.items() if value is not None]
    return tag("table", *rows) if rows else Markup("")


STYLE = """
:root{--ink:#1f2430;--soft:#667085;--line:#e4e7ec;--paper:#fff;--ground:#f6f7f9;--blue:#2f6fde;--red:#d9534f}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
  font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
header,main{max-width:1120px;margin:0 auto;padding:0 24px}
header{padding-top:40px}
h1{margin:0;font-size:30px;line-height:1.2;letter-spacing:-.01em}
h2{margin:0 0 14px;font-size:18px}
.note{margin:6px 0 0;color:var(--soft)}
.figures{display:flex;flex-wrap:wrap;gap:14px;margin:24px 0 4px}
.figure{flex:1 1 140px;background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:14px 18px}
.figure b{display:block;white-space:nowrap;font-size:25px;line-height:1.25;letter-spacing:-.01em;font-variant-numeric:tabular-nums}
.figure span{color:var(--soft);font-size:13px}
section{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:22px 24px;margin:18px 0}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:8px 28px}
figure{margin:0;max-width:660px}
figure.wide{max-width:none}
figcaption{font-weight:600;font-size:14px;margin-bottom:4px}
.chart{width:100%;height:auto;display:block;font-family:inherit}
.matrix{max-width:560px}
.side{display:grid;grid-template-columns:minmax(300px,1.1fr) minmax(300px,1fr);gap:14px 40px;align-items:center;margin-top:14px}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:0 18px;align-items:start}
.grid{stroke:var(--line);stroke-width:1}
.tick{fill:var(--soft);font-size:12px}
.legend{fill:var(--ink);font-size:12.5px}
.count{font-size:12px;font-variant-numeric:tabular-nums}
.samples{display:grid;grid-template-columns:repeat(auto-fill,minmax(108px,1fr));gap:12px}
.sample{border:1px solid var(--line);border-radius:8px;padding:8px;text-align:center;font-size:13px}
.sample img{width:100%;aspect-ratio:1;image-rendering:pixelated;border-radius:4px;background:#000}
.sample span{display:block;margin-top:4px;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.sample.wrong{border-color:var(--red);background:#fdf3f2}
.sample.wrong span{color:#a32f2b;font-weight:600}
.sure{display:block;height:4px;border-radius:2px;background:#e9ecf1;margin-top:4px;overflow:hidden}
.sure i{display:block;height:4px;background:var(--blue)}
.wrong .sure i{background:var(--red)}
pre{margin:0 0 12px;font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;overflow-x:auto}
pre.text{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--ground);border-radius:8px;padding:14px 16px}
pre.text b{color:var(--blue);font-weight:600}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;padding:6px 10px;border-top:1px solid var(--line);vertical-align:top}
td{overflow-wrap:anywhere}
tr:first-child>*{border-top:0}
th{font-weight:500;color:var(--soft);width:150px}
.model th,.classes th{width:auto}
td{font-variant-numeric:tabular-nums}
.number,.model th:last-child,.classes th:not(:first-child){text-align:right}
@media(max-width:760px){.charts,.side,.pair{grid-template-columns:1fr}header,main{padding-left:12px;padding-right:12px}section{padding:16px}}
@media print{body{background:#fff}section,.figure{break-inside:avoid}}
"""
