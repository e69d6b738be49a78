"""metrics.jsonl: a JSON object a line, written by a run that may be killed at any moment and read by the one that goes on."""

import itertools
import json
import math
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from needle_nn.files import naming, open_regular, replacing


class Row(NamedTuple):
    """A line of the file: its number from 1, its bytes, and the object in it, or why there is none."""

    number: int
    line: bytes
    values: dict[str, Any]
    problem: str | None = None


class History(list[dict[str, Any]]):
    """Rows of a run, as metrics.jsonl has them, whose curves a notebook shows; `History(read_metrics(path))` has a file's."""

    def _repr_html_(self) -> str:
        from needle_nn.notebook import history_html

        return history_html(self)


def read_metrics(path: str | os.PathLike) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl; a last line that was cut off is left out.

    Other lines that cannot be read are skipped, with one warning that names them.
    """
    rows = _rows(path)
    _warn(path, rows, "skipped")
    return [row.values for row in rows if not row.problem]


def keep_rows(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Leave the wanted rows in the file, byte for byte; what cannot be read goes to a file beside it."""
    rows = _rows(path)
    damaged = b"".join(row.line + b"\n" for row in rows if row.problem and row.line.strip(b"\0 \t\r"))
    beside = path.with_name(path.name + ".damaged")
    if damaged:
        with naming(beside), beside.open("ab") as file:
            file.write(damaged)
    _warn(path, rows, f"kept in {beside.name}" if damaged else "skipped")
    write_rows(path, [row.line for row in rows if not row.problem and wanted(row.values)])


def write_rows(path: Path, lines: Sequence[bytes]) -> None:
    """Begin the file with these lines."""
    with replacing(path) as unfinished:
        unfinished.write_bytes(b"".join(line + b"\n" for line in lines))


def append_row(file: BinaryIO, path: Path, row: dict[str, Any]) -> None:
    """Write a row at the end of an unbuffered file, whole or not at all."""
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()
    }
    line = json.dumps(finite, allow_nan=False).encode() + b"\n"  # JSON has neither nan nor inf
    end = file.seek(0, os.SEEK_END)
    with naming(path):
        try:
            left = memoryview(line)
            while left:
                left = left[file.write(left) :]
        except OSError:
            file.truncate(end)
            raise


def _rows(path: str | os.PathLike) -> list[Row]:
    try:
        with open_regular(path) as file:
            lines = file.read().split(b"\n")[:-1]  # what follows the last newline is cut off
    except FileNotFoundError:
        return []
    return [_row(number, line) for number, line in enumerate(lines, 1)]


def _row(number: int, line: bytes) -> Row:
    line = line.strip(b"\0")  # as a power failure leaves them
    try:
        values = json.loads(line.decode("utf-8-sig"))
    except RecursionError:
        return Row(number, line, {}, "nested too deeply")
    except UnicodeDecodeError:
        return Row(number, line, {}, "not UTF-8")
    except ValueError:
        return Row(number, line, {}, "no JSON" if line.strip() else "blank")
    if not isinstance(values, dict):
        return Row(number, line, {}, "no JSON object")
    if not isinstance(values.get("kind"), str):
        return Row(number, line, {}, "no kind of row")
    for name in ("epoch", "step"):
        if type(values.get(name)) is not int or not 0 <= values[name] < 2**53:
            return Row(number, line, {}, f"no number of the {name}")
    return Row(number, line, values)


def _warn(path: str | os.PathLike, rows: Sequence[Row], done: str) -> None:
    bad = [row for row in rows if row.problem]
    if bad:
        told = f"line {bad[0].number} is" if len(bad) == 1 else f"lines {_numbers([row.number for row in bad])} are"
        first = bad[0].problem if len(bad) == 1 else f"{bad[0].problem} in line {bad[0].number}"
        warnings.warn(f"{os.fspath(path)}: {told} not readable ({first}): {done}", stacklevel=3)


def _numbers(numbers: Sequence[int]) -> str:
    """Ascending numbers to read.

    >>> _numbers([1, 2, 3, 7, 9, 10])
    '1-3, 7, 9-10'
    """
    runs = [
        [number for _, number in group]
        for _, group in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ]
    told = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return ", ".join(told[:10]) + (f" and {len(told) - 10} more" if len(told) > 10 else "")
