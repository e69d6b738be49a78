"""The page a run leaves: well-formed, complete in itself, everything escaped; drawn by a browser where there is one."""

import base64
import math
import re
import shutil
import struct
import subprocess
import xml.etree.ElementTree as ElementTree
import zlib

import numpy as np
import pytest

from needle_nn.report import Report, Sample, render, write_report
from needle_nn.reporting.charts import Line, confusion_chart, line_chart, ticks
from needle_nn.reporting.markup import Markup, escape, tag
from needle_nn.reporting.pictures import data_address, png

HOSTILE = "<script>alert(1)</script>\"'&\x00\x1b\ufffe 🧵 \ud800"
SUMMARY = (
    "layer       output  parameters\nNet         (1, 2)          58\n  0: Conv   (1, 8)          40\n58 parameters"
)
STEPS = [{"kind": "step", "epoch": 1, "step": 10 * i, "loss": 2.0 / i, "lr": 0.1 / i} for i in range(1, 60)]
EPOCHS = [
    {"kind": "epoch", "step": 100 * i, "loss": 1 / i, "accuracy": 0.9, "valid_loss": 1.1 / i, "valid_accuracy": 0.8}
    for i in range(1, 6)
]


def full():
    rng = np.random.RandomState(0)
    return Report(
        "needle train digits",
        "1437 digits",
        figures={"test accuracy": "98.33%", "test loss": "0.0710", "parameters": "21,386"},
        history=STEPS + EPOCHS,
        confusion=rng.randint(0, 4, (10, 10)) + 30 * np.eye(10, dtype=int),
        classes=[str(i) for i in range(10)],
        samples=[Sample(rng.rand(8, 8), "3", "3" if i else "5", 0.9) for i in range(12)],
        texts=[("temperature 1", "Once upon", " a time\nthere <was>"), ("", "", "x")],
        model=SUMMARY,
        settings={"seed": 0, "lr": 0.001, "data": None},
        environment={"Python": "3"},
    )


SECTIONS = {
    "Learning curves": {"history": ()},
    "Confusion matrix": {"confusion": None},
    "Sample predictions": {"samples": ()},
    "Generated text": {"texts": ()},
    "Model": {"model": ""},
    "Settings": {"settings": {}},
    "Machine and versions": {"environment": {}},
}


def parsed(report):
    return ElementTree.fromstring(render(report))


def headings(page):
    return [element.text for element in page.iter("h2")]


# ---- Structure ------------------------------------------------------------------------------------------------------


def test_has_every_section():
    assert headings(parsed(full())) == list(SECTIONS)


@pytest.mark.parametrize("section", SECTIONS)
def test_an_empty_part_is_left_out(section):
    report = full()
    for name, empty in SECTIONS[section].items():
        setattr(report, name, empty)
    assert headings(parsed(report)) == [name for name in SECTIONS if name != section]


def test_nothing_from_elsewhere():
    """No address but those of pictures in the page itself; no script."""
    page = render(full())
    assert set(re.findall(r'(?:src|href)="([a-z]+:[a-z/]+)', page)) == {"data:image/png"}
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<script|<link|<iframe|srcset|\bon\w+=", page)


def test_numbers_are_on_the_page():
    page = "".join(parsed(full()).itertext())
    for text in ("98.33%", "21,386", "0: Conv", "(1, 8)", "58 parameters", "there <was>", "predicted", "Learning rate"):
        assert text in page


PLACES = {
    "title": {"title": HOSTILE},
    "subtitle": {"subtitle": HOSTILE},
    "figures": {"figures": {HOSTILE: HOSTILE}},
    "classes": {"classes": [HOSTILE] * 10},
    "samples": {"samples": [Sample(np.zeros((2, 2)), HOSTILE, HOSTILE + "x", 0.5)]},
    "texts": {"texts": [(HOSTILE, HOSTILE, HOSTILE)]},
    "model": {"model": f"{HOSTILE}\n{HOSTILE}"},
    "model table": {"model": f"a  b  c\n{HOSTILE.replace(' ', '_')}  x  y\nend"},
    "settings": {"settings": {HOSTILE: HOSTILE}},
    "environment": {"environment": {HOSTILE: HOSTILE}},
}


@pytest.mark.parametrize("place", PLACES)
def test_hostile_text_is_shown_and_not_run(place):
    report = full()
    for name, value in PLACES[place].items():
        setattr(report, name, value)
    page = parsed(report)
    assert not list(page.iter("script"))
    shown = "".join(page.itertext()) + "".join(value for element in page.iter() for value in element.attrib.values())
    assert "<script>alert(1)</script>" in shown


@pytest.mark.parametrize("name", ["on click", "x=y", "a>b", ""])
def test_names_of_attributes_are_names(name):
    with pytest.raises(ValueError, match="expected names"):
        tag("p", **{name: 1})


def test_markup():
    assert escape(Markup("<b/>")) == "<b/>" and escape("<b/>") == "&lt;b/&gt;"
    assert (
        tag("p") == "<p></p>"
        and tag("rect", x=1.25, y=2.0, stroke_width=3, rx=None) == '<rect x="1.2" y="2" stroke-width="3"/>'
    )


def test_page_is_written_whole(tmp_path):
    write_report(tmp_path / "report.html", full())
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == render(full())
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


# ---- Charts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 690, [0, 200, 400, 600]),
        (0.93, 0.97, [0.93, 0.94, 0.95, 0.96, 0.97]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
        (5, 5, [5]),
        (0, 1e-7, [0, 2e-8, 4e-8, 6e-8, 8e-8, 1e-7]),
    ],
)
def test_ticks(low, high, wanted):
    assert ticks(low, high) == pytest.approx(wanted)


LINES = {
    "one point": [(5, 1.0)],
    "flat": [(0, 2.0), (10, 2.0)],
    "zero": [(0, 0.0), (1, 0.0)],
    "negative": [(1, -3.0), (2, 4.0)],
    "huge and tiny": [(1, 1e-30), (2, 1e30)],
    "not finite": [(1, math.nan), (2, math.inf), (3, 1.0), (4, None)],
    "many": [(i, math.sin(i)) for i in range(100_000)],
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("percent", [False, True])
def test_line_charts_stay_in_their_frame(name, log, percent):
    chart = ElementTree.fromstring(
        line_chart("Loss", [Line("a", LINES[name], "#123456", dots=True)], log=log, percent=percent)
    )
    if chart.tag == "p":  # nothing to draw on a logarithmic axis
        assert log and all(not y or y <= 0 for _, y in LINES[name])
        return
    (path,) = chart.iter("path")
    spots = [[float(v) for v in spot.split()] for spot in path.get("d")[1:].split("L")]
    assert len(spots) <= 400 and all(50 <= x <= 560 and 0 <= y <= 300 for x, y in spots)


def test_points_are_where_they_belong():
    """The first and last point lie at the ends of the x axis, larger values higher up."""
    line = Line("a", [(0, 1.0), (5, 3.0), (10, 2.0)], "#123456", dots=True)
    chart = ElementTree.fromstring(line_chart("Loss", [line]))
    (path,) = chart.iter("path")
    (x0, y0), (x1, y1), (x2, y2) = ([float(v) for v in spot.split()] for spot in path.get("d")[1:].split("L"))
    assert (x0, x2) == (52, 544) and x1 == pytest.approx((x0 + x2) / 2) and y1 < y2 < y0
    assert y0 - y2 == pytest.approx(y2 - y1, abs=0.2)
    assert [(float(dot.get("cx")), float(dot.get("cy"))) for dot in chart.iter("circle")] == [
        (x0, y0),
        (x1, y1),
        (x2, y2),
    ]


def test_no_lines():
    assert "No data for Loss" in line_chart("Loss", [Line("a", [], "#000")])


@pytest.mark.parametrize(("n", "name"), [(1, "only"), (2, "{}"), (10, "kind number {}"), (40, "{}")])
def test_confusion_chart(n, name):
    names = [name.format(i) for i in range(n)]
    counts = np.arange(n * n).reshape(n, n)
    chart = ElementTree.fromstring(confusion_chart(counts, names))
    notes = [element.text for element in chart.iter("title")]
    for i, j in {(0, n - 1), (n - 1, 0)}:
        share = counts[i, j] / max(1, counts[i].sum())
        assert f"{names[i]} taken for {names[j]}: {counts[i, j]} ({share:.1%})" in notes
    width, height = map(float, chart.get("viewBox").split()[2:])
    for box in chart.iter("rect"):
        assert (
            float(box.get("x")) + float(box.get("width")) <= width
            and float(box.get("y")) + float(box.get("height")) <= height
        )


# ---- Pictures -------------------------------------------------------------------------------------------------------------


def pixels(data):
    """Decode what `png` writes, by the book: signature, chunks with their checksums, filter 0."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (size,), name = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        content = data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(name + content)
        chunks[name], at = content, at + 12 + size
    width, height, depth, kind, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert depth == 8 and rest == [0, 0, 0] and list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape((height, width) if kind == 0 else (height, width, 3))


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        (np.array([[0, 255], [7, 8]], np.uint8), [[0, 255], [7, 8]]),
        (np.array([[0.0, 0.5, 1.0]]), [[0, 128, 255]]),
        (np.array([[-3.0, 9.0, math.nan]]), [[0, 255, 0]]),
        (np.zeros((2, 3, 1)), [[0] * 3] * 2),
        (np.arange(12, dtype=np.uint8).reshape(2, 2, 3), np.arange(12).reshape(2, 2, 3).tolist()),
    ],
)
def test_png(image, wanted):
    assert pixels(png(image)).tolist() == wanted
    assert base64.b64decode(data_address(image).partition(",")[2]) == png(image)


@pytest.mark.parametrize("shape", [(), (3,), (2, 2, 4), (0, 2), (1, 2, 3, 3)])
def test_png_refuses(shape):
    with pytest.raises(ValueError, match="expected"):
        png(np.zeros(shape))


# ---- In a browser -------------------------------------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_in_chromium(tmp_path):
    """The browser finds every section and chart, and the picture it takes is no blank page."""
    write_report(tmp_path / "report.html", full())
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    address, picture = (tmp_path / "report.html").as_uri(), tmp_path / "page.png"
    done = subprocess.run([CHROMIUM, *flags, "--dump-dom", address], capture_output=True, text=True, timeout=60)
    assert re.findall(r"<h2>(.*?)</h2>", done.stdout) == list(SECTIONS) and done.stdout.count("<svg") == 4
    flags += [f"--screenshot={picture}", "--window-size=1200,2400"]
    subprocess.run([CHROMIUM, *flags, address], capture_output=True, timeout=60)
    data = picture.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (1200, 2400) and len(data) > 50_000
