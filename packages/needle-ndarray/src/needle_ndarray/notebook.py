"""What a notebook shows of an array: a line of facts, a map of values, and the values as text.

However large the array is, a few hundred of its elements are read. Colours are those of the page, dark or light, but for the map's.
"""

import html
import math
from typing import Any

import numpy as np

from needle_ndarray.ndarray import NDArray

ROWS, COLUMNS, MAPS = 12, 32, 4  # of a map, and how many maps
CELL = 9  # pixels
FONT = "font-family:sans-serif;font-size:13px"
TEXT = 300  # elements up to which all values are printed
#: Blue, grey, orange: below 0, 0 and above; from grey on where nothing is negative.
COLD, ZERO, WARM = (47, 111, 222), (148, 152, 160), (224, 128, 27)
STRANGE = "#d6336c"  # NaN and infinities


def array_html(array: NDArray, kind: str = "NDArray", made: str = "") -> str:
    """Facts, maps and values of an array, as HTML."""
    facts = [f"<b>{html.escape(kind)}</b> {array.shape}", str(array.dtype), str(array.device), html.escape(made)]
    line = " · ".join(fact for fact in facts if fact)
    parts = [f'<div style="{FONT};margin:2px 0">{line}</div>']
    if array.size > 1 and array.ndim:
        parts.append(_maps(array))
    text = html.escape(str(array))
    if array.size > TEXT:
        text = f'<details style="{FONT}"><summary>values</summary>{_pre(text)}</details>'
    else:
        text = _pre(text)
    return f"<div>{''.join(parts)}{text}</div>"


def _pre(text: str) -> str:
    return f'<pre style="margin:4px 0;background:transparent;color:inherit;max-height:22em;overflow:auto">{text}</pre>'


def _maps(array: NDArray) -> str:
    """Maps of the first matrices of an array, and a word on what they leave out."""
    rows, columns = (1, array.shape[0]) if array.ndim == 1 else array.shape[-2:]
    count = math.prod(array.shape[:-2])
    places = [np.unravel_index(i, array.shape[:-2]) for i in range(min(count, MAPS))]
    tables = [_sampled(array[tuple(map(int, place))]) for place in places]
    finite = np.concatenate([table[np.isfinite(table)] for table in tables])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    parts = [_map(table, low, high) for table in tables]
    said = (
        []
        if rows <= ROWS and columns <= COLUMNS
        else [f"{tables[0].shape[0]} × {tables[0].shape[1]} of {rows} × {columns}"]
    )
    said += [] if count <= MAPS else [f"{len(tables)} of {count:,} matrices"]
    scale = f"from {low:.4g} to {high:.4g}" + "".join(f", {words}" for words in said)
    note = f'<div style="font-family:sans-serif;font-size:11px;opacity:.7">{scale}</div>'
    return f'<div style="display:flex;gap:8px;flex-wrap:wrap">{"".join(parts)}</div>{note}'


def _sampled(matrix: NDArray) -> np.ndarray:
    """A matrix, or evenly spaced rows and columns of a large one, as floats."""
    matrix = matrix.reshape((1, -1)) if matrix.ndim < 2 else matrix
    steps = [max(1, -(-n // most)) for n, most in zip(matrix.shape, (ROWS, COLUMNS), strict=True)]
    return matrix[:: steps[0], :: steps[1]].numpy().astype(np.float64)


def _map(table: np.ndarray, low: float, high: float) -> str:
    """A rectangle for every value, which is its title."""
    rows, columns = table.shape
    cells = []
    for i in range(rows):
        for j in range(columns):
            fill = color(float(table[i, j]), low, high)
            place = f'x="{j * CELL}" y="{i * CELL}" width="{CELL - 1}" height="{CELL - 1}"'
            cells.append(f'<rect {place} fill="{fill}"><title>{table[i, j]:.6g}</title></rect>')
    size = f'width="{columns * CELL}" height="{rows * CELL}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>{"".join(cells)}</svg>'


def color(value: float, low: float, high: float) -> str:
    """The colour of a value: grey is 0, or the lowest where nothing is negative, and the highest where nothing is positive.

    >>> color(0.0, -1.0, 1.0), color(1.0, -1.0, 1.0), color(-1.0, -1.0, 1.0), color(float("nan"), 0.0, 1.0)
    ('#9498a0', '#e0801b', '#2f6fde', '#d6336c')
    """
    if not math.isfinite(value):
        return STRANGE
    start = min(max(0.0, low), high)
    largest = max(high - start, start - low)
    share = abs(value - start) / largest if largest > 0 else 0.0
    end: Any = WARM if value >= start else COLD
    return "#" + "".join(f"{round(a + (b - a) * min(share, 1.0)):02x}" for a, b in zip(ZERO, end, strict=True))
