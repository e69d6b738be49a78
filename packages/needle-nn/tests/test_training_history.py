"""metrics.jsonl with lines that are damaged: they are skipped and named, and no other line is lost."""

import json
import warnings

import pytest
from trainer_helpers import points, seeded, trainer  # noqa: F401  a fixture

from needle_nn.data import DataLoader
from needle_nn.report import Report, render
from needle_nn.training import MetricsFile
from needle_nn.training.history import keep_rows, read_metrics

GOOD = [{"kind": "step", "epoch": 1, "step": step, "loss": 0.5, "lr": 0.1 / step} for step in range(1, 6)]
BAD = {
    "blank": (b"", "blank"),
    "spaces": (b"  \t\r", "blank"),
    "zeros": (bytes(40), "blank"),
    "number": (b"5", "no JSON object"),
    "list": (b"[]", "no JSON object"),
    "null": (b"null", "no JSON object"),
    "text": (b'"step"', "no JSON object"),
    "nan": (b"NaN", "no JSON object"),
    "empty object": (b"{}", "no kind of row"),
    "cut": (b'{"kind": "step", "epo', "no JSON"),
    "two cut into one": (b'{"kind": "st{"kind": "step", "epoch": 1, "step": 2}', "no JSON"),
    "words": (b"hello", "no JSON"),
    "not UTF-8": (b'{"kind": "\xff"}', "not UTF-8"),
    "zeros in it": (b'{"kind": "step", \0\0\0 1, "step": 2}', "no JSON"),
    "kind is a number": (b'{"kind": 1, "epoch": 1, "step": 2}', "no kind of row"),
    "kind is a list": (b'{"kind": [], "epoch": 1, "step": 2}', "no kind of row"),
    "no step": (b'{"kind": "step", "epoch": 1}', "no number of the step"),
    "no epoch": (b'{"kind": "epoch", "step": 1}', "no number of the epoch"),
    "step is text": (b'{"kind": "step", "epoch": 1, "step": "2"}', "no number of the step"),
    "step is null": (b'{"kind": "step", "epoch": 1, "step": null}', "no number of the step"),
    "step is true": (b'{"kind": "step", "epoch": 1, "step": true}', "no number of the step"),
    "step is a fraction": (b'{"kind": "step", "epoch": 1, "step": 1.5}', "no number of the step"),
    "step is negative": (b'{"kind": "step", "epoch": 1, "step": -1}', "no number of the step"),
    "step is huge": (b'{"kind": "step", "epoch": 1, "step": 1' + b"0" * 400 + b"}", "no number of the step"),
    "too many digits": (b'{"kind": "step", "epoch": 1, "step": 1' + b"0" * 5000 + b"}", "no JSON"),
    "deep": (b"[" * 100_000, "nested too deeply"),
}
# Odd values in a row that is one: the row stays, the page draws what are numbers.
ODD = ['"much"', "[]", "{}", "true", "null", "1e999", "-1e999", "NaN", "1" + "0" * 400, "-3"]


def line(row):
    return json.dumps(row).encode() + b"\n"


def with_line(path, at, damaged):
    lines = [line(row) for row in GOOD]
    lines[at:at] = [damaged + b"\n"]
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize("at", [0, 3, 5])
@pytest.mark.parametrize("name", BAD)
def test_a_damaged_line_is_skipped_and_named(tmp_path, name, at):
    damaged, reason = BAD[name]
    path = tmp_path / "metrics.jsonl"
    with_line(path, at, damaged)
    before = path.read_bytes()
    with pytest.warns(UserWarning) as caught:
        assert read_metrics(path) == GOOD
    (told,) = caught
    assert str(told.message) == f"{path}: line {at + 1} is not readable ({reason}): skipped"
    assert path.read_bytes() == before  # a reader changes nothing


@pytest.mark.parametrize("name", BAD)
def test_a_run_goes_on_and_keeps_every_line(tmp_path, name):
    """Good lines byte for byte, in the file; damaged ones beside it; the next reader has nothing to say."""
    damaged, reason = BAD[name]
    path = tmp_path / "metrics.jsonl"
    with_line(path, 2, damaged)
    with pytest.warns(UserWarning, match=r"line 3 is not readable") as caught:
        keep_rows(path, lambda row: row["step"] <= 4)
    assert len(caught) == 1 and f"({reason})" in str(caught[0].message)
    assert path.read_bytes() == b"".join(map(line, GOOD[:4]))
    beside = tmp_path / "metrics.jsonl.damaged"
    if reason == "blank":
        assert not beside.exists()
    else:
        assert "kept in metrics.jsonl.damaged" in str(caught[0].message) and beside.read_bytes() == damaged + b"\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_metrics(path) == GOOD[:4]


def test_all_of_them_in_one_line(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b"".join(damaged + b"\n" for damaged, _ in BAD.values()) + line(GOOD[0]) + b"\n" + b"5\n")
    with pytest.warns(UserWarning) as caught:
        assert read_metrics(path) == GOOD[:1]
    n = len(BAD)
    (told,) = caught
    assert f"lines 1-{n}, {n + 2}-{n + 3} are not readable (blank in line 1)" in str(told.message)


@pytest.mark.parametrize("extra", [b"", b"\0\0\0", b'{"kind": "st', b"\xff"])
def test_what_was_cut_off_at_the_end_is_nothing_new(tmp_path, extra):
    path = tmp_path / "m"
    path.write_bytes(b"".join(map(line, GOOD)) + extra)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_metrics(path) == GOOD


@pytest.mark.parametrize("around", [(b"\0\0", b""), (b"", b"\0\0"), (b"\xef\xbb\xbf", b""), (b" ", b"\r")])
def test_a_row_that_can_be_read_is_read(tmp_path, around):
    path = tmp_path / "m"
    path.write_bytes(around[0] + line(GOOD[0])[:-1] + around[1] + b"\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_metrics(path) == GOOD[:1]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["loss", "valid_loss", "accuracy", "lr", "seconds", "other"])
def test_odd_values_are_left_out_of_the_page(tmp_path, name, odd):
    path = tmp_path / "m"
    rows = [f'{{"kind": "{kind}", "epoch": 1, "step": 9, "{name}": {odd}}}' for kind in ("step", "epoch", "mine")]
    path.write_text("\n".join(rows) + "\n" + line(GOOD[0]).decode() + line(GOOD[1]).decode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_metrics(path)
    assert len(found) == 5 and "Learning curves" in render(Report("x", history=found))


def test_a_trainer_goes_on(tmp_path):
    path, loader = tmp_path / "metrics.jsonl", DataLoader(points(), 16, seed=0)
    first = trainer(callbacks=[MetricsFile(path, every=1)])
    first.fit(loader, 1)
    whole = path.read_bytes()
    path.write_bytes(b"\n" + whole + b"{}\n")
    with pytest.warns(UserWarning, match="lines 1, 6 are not readable"):
        first.fit(loader, 2)
    assert path.read_bytes().startswith(whole) and [row["step"] for row in read_metrics(path)] == [
        1,
        2,
        3,
        3,
        4,
        5,
        6,
        6,
    ]
