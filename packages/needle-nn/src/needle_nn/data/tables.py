"""Datasets out of tables: CSV files, Parquet files, and Hugging Face's `datasets`.

>>> import os, tempfile
>>> path = os.path.join(tempfile.mkdtemp(), "iris.csv")
>>> with open(path, "w") as file:
...     _ = file.write("length,width,kind\\n5.1,3.5,setosa\\n7.0,3.2,versicolor\\n")
>>> data = CSVDataset(path, target="kind")
>>> data.columns, data.classes, data[1]
(['length', 'width'], ['setosa', 'versicolor'], (array([7. , 3.2], dtype=float32), np.int64(1)))
"""

import csv
from collections.abc import Sequence
from typing import Any

import numpy as np

from needle_nn.data.dataset import Dataset, NDArrayDataset
from needle_nn.data.files import open_packed


def needs(what: str, module: str, extra: str) -> Any:
    """A module of another distribution, or the line that says what to install."""
    from importlib import import_module

    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != module.partition(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"{what} needs {module.partition('.')[0]}: pip install needle-nn[{extra}]", name=error.name
        ) from None


class TableDataset(NDArrayDataset):
    """Columns of numbers as rows of float32, and one column as the target: item i is (x, y), or (x,) without a target.

    `columns` are the names of the features. A target of texts becomes integers, the places of the texts in `classes`.
    """

    columns: list[str]
    classes: list[str] | None = None

    def _fill(self, what: str, table: dict[str, np.ndarray], columns: Sequence[str] | None, target: str | None) -> None:
        for name in (*(columns or ()), *([target] if target is not None else ())):
            if name not in table:
                raise ValueError(f"{what}: no column {name!r}; there are {', '.join(table)}")
        self.columns = [name for name in table if name != target] if columns is None else list(columns)
        if not self.columns:
            raise ValueError(f"{what}: no columns of features")
        for name in self.columns:
            if table[name].dtype.kind not in "fiub":
                raise ValueError(f"{what}: column {name!r} holds texts, expected numbers; name the columns to be taken")
        arrays = [np.stack([table[name] for name in self.columns], 1).astype(np.float32)]
        if target is not None:
            y = table[target]
            if y.dtype.kind not in "fiub":
                found, y = np.unique(y, return_inverse=True)
                self.classes = [str(name) for name in found]
            arrays.append(y.astype(np.float32) if y.dtype.kind == "f" else y.astype(np.int64))
        NDArrayDataset.__init__(self, *arrays)


class CSVDataset(TableDataset):
    """A CSV file whose first line has the names of its columns.

    Parameters
    ----------
    path : of the file; gzipped too
    target : name of the column to be predicted
    columns : names of the features; all others, unless given
    delimiter : between the entries of a line
    """

    def __init__(
        self, path: Any, target: str | None = None, columns: Sequence[str] | None = None, delimiter: str = ","
    ) -> None:
        rows = [row for row in csv.reader(_text(path).splitlines(), delimiter=delimiter) if row]
        what = f"CSVDataset: {path}"
        if len(rows) < 2:
            raise ValueError(f"{what}: {len(rows)} lines, expected the names of the columns and one row or more")
        names, body = rows[0], rows[1:]
        for i, row in enumerate(body):
            if len(row) != len(names):
                raise ValueError(f"{what}: row {i + 1} has {len(row)} entries, expected {len(names)}")
        table = {name: _numbers(column) for name, column in zip(names, zip(*body, strict=True), strict=True)}
        self._fill(what, table, columns, target)


def _text(path: Any) -> str:
    with open_packed(path) as (stream, bound):
        data = stream.read(bound + 1)
    if len(data) > bound:
        raise ValueError(f"{path}: more than {bound} bytes when unpacked")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: no text in UTF-8: {error.reason} at byte {error.start}") from None


def _numbers(column: Sequence[str]) -> np.ndarray:
    """Texts as ints where all are, else as floats, an empty one as NaN; else as they are."""
    for kind in (np.int64, np.float64):
        try:
            return np.array([kind(text) if text or kind is np.int64 else np.nan for text in column])
        except (ValueError, OverflowError):
            continue
    return np.array(column)


class ParquetDataset(TableDataset):
    """A Parquet file; needs the extra `parquet`.

    Parameters
    ----------
    path, target, columns : as for `CSVDataset`
    """

    def __init__(self, path: Any, target: str | None = None, columns: Sequence[str] | None = None) -> None:
        table = needs("ParquetDataset", "pyarrow.parquet", "parquet").read_table(path)
        arrays = {name: table.column(name).to_numpy() for name in table.column_names}
        self._fill(f"ParquetDataset: {path}", arrays, columns, target)


class HuggingFaceDataset(Dataset):
    """A dataset of Hugging Face's `datasets`, which is asked for items of NumPy arrays; needs the extra `datasets`.

    Parameters
    ----------
    source : a `datasets.Dataset`, or the name of one that `datasets.load_dataset` finds
    split : which part of it, where a name is given
    columns : what items hold, in this order: an item is a tuple. Without, it is a dict of all columns
    """

    def __init__(self, source: Any, split: str = "train", columns: Sequence[str] | None = None) -> None:
        super().__init__()
        if isinstance(source, str):
            source = needs("HuggingFaceDataset", "datasets", "datasets").load_dataset(source, split=split)
        if not hasattr(source, "with_format"):
            raise TypeError(f"HuggingFaceDataset: expected a dataset or its name, got {type(source).__name__}")
        self.columns = None if columns is None else list(columns)
        for name in self.columns or ():
            if name not in source.column_names:
                raise ValueError(f"HuggingFaceDataset: no column {name!r}; there are {', '.join(source.column_names)}")
        self.source = source.with_format("numpy")

    def __getitem__(self, index: Any) -> Any:
        item = self.source[index]
        return dict(item) if self.columns is None else tuple([item[name] for name in self.columns])

    def __len__(self) -> int:
        return len(self.source)
