"""Registers, stack and shared memory of every kernel, as a table in Markdown: `python -m needle_cuda.testing.resources`.

Needs cupy and NVRTC, no GPU. Kernels that differ by their op only share a row; `--full` gives each dtype and op one.
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from needle_cuda import catalogue, launch
from needle_cuda.testing.cubin import Resources, resources
from needle_cuda.testing.nvrtc import ARCHITECTURES, compile_cubin


class Row(NamedTuple):
    file: str
    kernel: str
    dtype: str
    defines: tuple[str, ...]
    architecture: str
    needs: Resources


def compiled(modules: Iterable[catalogue.Module], architecture: str) -> Iterable[Row]:
    """What each kernel of these modules needs."""
    for file, dtype, defines in modules:
        cubin = compile_cubin(launch.source(file), launch.options(file, dtype, defines), architecture, file)
        for kernel, needs in resources(cubin).items():
            yield Row(file, kernel, dtype, defines, architecture, needs)


def family(kernel: str) -> str:
    """The kernel's name with the op left out: unary_exp_strided -> unary_*_strided."""
    return re.sub(r"^(unary|binary|reduce)_\w+?(|_strided|_rows|_columns|_finish)$", r"\1_*\2", kernel)


def _span(numbers: Iterable[int]) -> str:
    low, high = min(found := list(numbers)), max(found)
    return str(low) if low == high else f"{low} to {high}"


def table(rows: list[Row], full: bool = False) -> str:
    """Markdown: a line per kernel, or family of kernels, with the registers on each architecture."""
    lines = defaultdict(list)
    for row in rows:
        key = (
            (row.file, row.kernel, " ".join((row.dtype, *row.defines))) if full else (row.file, family(row.kernel), "")
        )
        lines[key].append(row)
    architectures = sorted({row.architecture for row in rows})
    head = [
        "file",
        "kernel",
        *(["dtype"] if full else []),
        *(f"registers {each}" for each in architectures),
        "shared",
        "stack",
    ]
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (file, kernel, dtype), found in sorted(lines.items()):
        registers = [_span(row.needs.registers for row in found if row.architecture == each) for each in architectures]
        rest = [_span(row.needs.shared for row in found), _span(row.needs.stack for row in found)]
        out.append("| " + " | ".join([file, f"`{kernel}`", *([dtype] if full else []), *registers, *rest]) + " |")
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="a line per dtype and op")
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES, help="only this architecture")
    parser.add_argument("--save", metavar="FILE", help="also write the rows as JSON")
    chosen = parser.parse_args()
    rows = [row for each in chosen.arch or ARCHITECTURES for row in compiled(catalogue.modules(), each)]
    if chosen.save:
        with open(chosen.save, "w") as file:
            json.dump(rows, file)
    print(table(rows, chosen.full))


if __name__ == "__main__":
    main()
