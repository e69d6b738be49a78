"""What checks are made of: a list that they register in, and comparisons that say what was expected and given in one line."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

THE_FILE = "the file"  # the title of the result for a file that cannot be loaded


class Wrong(Exception):
    """A result that is not the right one; the message has both."""


@dataclass(frozen=True)
class Check:
    title: str
    run: Callable[["Student"], None]
    hint: str


class Checks:
    """The checks of a chapter, in order: `@checks("title", "hint")` above a function of the student's file adds one."""

    def __init__(self) -> None:
        self.all: list[Check] = []

    def __call__(self, title: str, hint: str) -> Callable[[Callable[["Student"], None]], Callable[["Student"], None]]:
        def add(function: Callable[["Student"], None]) -> Callable[["Student"], None]:
            self.all.append(Check(title, function, hint))
            return function

        return add

    def __iter__(self) -> Iterator[Check]:
        return iter(self.all)


class Student:
    """The student's file: the names it defines, and where it lies."""

    def __init__(self, path: Path, names: dict[str, Any]) -> None:
        self.path, self._names = path, names

    def __getattr__(self, name: str) -> Any:
        try:
            return self._names[name]
        except KeyError:
            raise Wrong(f"{self.path.name} defines no `{name}`") from None


def array(what: str, given: Any, shape: Sequence[int] | None = None) -> np.ndarray:
    """The result as a NumPy array, if it is one (or a Tensor, an NDArray, a number)."""
    if given is None:
        raise Wrong(f"{what}: expected an array, given None: is a `return` missing?")
    if hasattr(given, "numpy"):
        given = given.numpy()
    if not isinstance(given, (np.ndarray, np.generic, float, int)):
        raise Wrong(f"{what}: expected an array, given {type(given).__name__}")
    found = np.asarray(given)
    if found.dtype.kind not in "fiub":
        raise Wrong(f"{what}: expected numbers, given an array of {found.dtype}")
    if shape is not None and found.shape != tuple(shape):
        raise Wrong(f"{what}: expected shape {tuple(shape)}, given {found.shape}")
    return found


def close(what: str, given: Any, expected: Any, tolerance: float = 1e-4) -> None:
    """The same shape and, relative to the largest number, the same values; else the entry that differs most."""
    expected = np.asarray(expected, np.float64)
    found = array(what, given, expected.shape).astype(np.float64)
    if expected.size == 0:
        return
    with np.errstate(invalid="ignore"):
        error = np.abs(found - expected)
    error = np.where(np.isnan(error), np.where(np.isnan(found) & np.isnan(expected), 0, np.inf), error)
    error = np.where(found == expected, 0, error)
    at = np.unravel_index(np.argmax(error), error.shape)
    scale = np.max(np.abs(expected[np.isfinite(expected)]), initial=1e-3)
    if error[at] > tolerance * scale:
        where = f"[{', '.join(map(str, at))}]" if at else ""
        raise Wrong(f"{what}{where}: expected {expected[at]:.6g}, given {found[at]:.6g}")


def same(what: str, given: Any, expected: Any) -> None:
    """Equal, and not an array."""
    if isinstance(given, (list, tuple)) and isinstance(expected, tuple):
        given = tuple(given)
    if type(given).__module__ == "numpy" or given != expected:
        raise Wrong(f"{what}: expected {expected!r}, given {given!r}"[:300])


def true(what: str, condition: Any) -> None:
    if not condition:
        raise Wrong(what)


def slope(function: Callable[..., float], arrays: Sequence[np.ndarray], i: int, step: float = 1e-5) -> np.ndarray:
    """The gradient of a function of float64 arrays by central differences, with respect to array i."""
    inputs = [np.array(a, np.float64) for a in arrays]
    out = np.zeros_like(inputs[i])
    for at in np.ndindex(out.shape):
        before = inputs[i][at]
        inputs[i][at] = before + step
        high = function(*inputs)
        inputs[i][at] = before - step
        low = function(*inputs)
        inputs[i][at] = before
        out[at] = (high - low) / (2 * step)
    return out


def explain(error: BaseException, path: Path) -> str:
    """An error of the student's code in one line, with the last line of the file that it went through."""
    if isinstance(error, Wrong):
        return str(error)
    text = " ".join(str(error).split())
    told = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{error.msg} (line {error.lineno} of {path.name}: {(error.text or '').strip()})"
    if isinstance(error, SystemExit):
        told = "the file ends the program (exit)"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == path.name]
    return f"{told} (line {frames[-1].lineno} of {path.name}: {frames[-1].line})" if frames else told
