"""Parts of datasets and datasets of parts, streams, tables, folders; batches of plain arrays without a copy in between."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what the loader draws from)

import gzip
import sys

import numpy as np
import pytest

import needle as ndl
from needle.data import (
    ConcatDataset,
    CSVDataset,
    DataLoader,
    Dataset,
    HuggingFaceDataset,
    ImageFolder,
    IterableDataset,
    NDArrayDataset,
    ParquetDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)


class Items(Dataset):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def __getitem__(self, i):
        return np.full(2, i, "float32"), i

    def __len__(self):
        return self.n


def rows(loader):
    return [x.numpy().tolist() for x, *_ in loader]


# ---- Plain arrays ------------------------------------------------------------

X = np.arange(30, dtype="float32").reshape(10, 3)
SOURCES = {
    "float32": X,
    "float64": X.astype("float64"),
    "uint8": X.astype("uint8"),
    "bool": X > 4,
    "int16": X.astype("int16"),
    "in the order of columns": np.asfortranarray(X),
    "every second": np.arange(60, dtype="float32").reshape(20, 3)[::2],
    "read only": np.frombuffer(X.tobytes(), "float32").reshape(10, 3),
    "numbers": np.arange(10),
    "nothing in a row": np.zeros((10, 0), "float32"),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["order", "shuffled", "subset"])
@pytest.mark.parametrize("name", SOURCES)
def test_plain_arrays_as_through_the_dataset(name, kind, workers):
    """Values, dtypes and shapes of a batch are those of a dataset that is asked for each."""

    class Asked(NDArrayDataset):
        takes_arrays = True

        def __getitem__(self, index):
            return super().__getitem__(index)

    def batches(cls):
        data = cls(SOURCES[name], np.arange(10))
        data = Subset(data, [7, 1, 1, -1, 4]) if kind == "subset" else data
        loader = DataLoader(data, 4, shuffle=kind == "shuffled", seed=0, num_workers=workers)
        return [[(t.shape, str(t.dtype), t.requires_grad, t.numpy().tolist()) for t in batch] for batch in loader]

    assert batches(NDArrayDataset) == batches(Asked)


def test_batches_are_copies_and_see_what_is_written():
    data = NDArrayDataset(X.copy())
    loader = DataLoader(data, 10)
    ((batch,),) = loader
    batch.realize_cached_data()[0, 0] = 99.0
    assert data.arrays[0][0, 0] == 0
    data.arrays[0][1, 1] = 77.0
    assert next(iter(loader))[0].numpy()[1, 1] == 77
    data.arrays = (X * 2,)
    np.testing.assert_array_equal(next(iter(loader))[0].numpy(), X * 2)


def test_arrays_that_were_cut_are_no_crash():
    data = NDArrayDataset(X)
    loader = DataLoader(data, 4)
    data.arrays = (X[:0],)
    assert rows(loader) == [] or pytest.fail("no rows are left")
    long = type("Long", (NDArrayDataset,), {"__len__": lambda self: 20, "takes_arrays": True})
    with pytest.raises(IndexError):
        rows(DataLoader(long(X), 4))


def test_device_and_dtype_are_kept():
    loader = DataLoader(NDArrayDataset(X, np.arange(10)), 4, device=ndl.cpu_numpy(), dtype="float64")
    x, y = next(iter(loader))
    assert (str(x.dtype), str(y.dtype), x.device) == ("float64", "int64", ndl.cpu_numpy())
    x, _ = next(iter(DataLoader(NDArrayDataset(X, np.arange(10)), 4, dtype="float64")))
    assert str(x.dtype) == "float64" and x.device == ndl.default_device()


# ---- Parts ------------------------------------------------------------


def test_subset_of_items_and_of_arrays():
    assert Subset(Items(5), [3, -1])[1][1] == 4 and len(Subset(Items(5), [])) == 0
    arrays = Subset(NDArrayDataset(X), [2, 0])
    assert arrays.takes_arrays and rows(DataLoader(arrays, 2)) == [X[[2, 0]].tolist()]
    nested = Subset(arrays, [1])
    assert rows(DataLoader(nested)) == [[X[0].tolist()]]
    with pytest.raises(ValueError, match="Subset: indices from 0 to 5, but the dataset has 5 items"):
        Subset(Items(5), [0, 5])


def test_random_split():
    np.random.seed(0)
    parts = random_split(Items(10), [7, 3])
    assert [len(part) for part in parts] == [7, 3]
    assert sorted(int(i) for part in parts for _, i in part_items(part)) == list(range(10))
    assert [len(p) for p in random_split(Items(10), [0.5, 0.25, 0.25], seed=1)] == [6, 2, 2]
    first, again = (random_split(Items(10), [5, 5], seed=3)[0].indices.tolist() for _ in range(2))
    assert first == again
    for lengths in ([5, 6], [0.5, 0.6], [-1, 11]):
        with pytest.raises(ValueError, match="random_split: lengths"):
            random_split(Items(10), lengths)


def part_items(part):
    return [part[i] for i in range(len(part))]


def test_concatenated():
    both = Items(3) + Items(2)
    assert isinstance(both, ConcatDataset) and len(both + Items(1)) == 6
    assert [both[i][1] for i in range(-5, 5)] == [0, 1, 2, 0, 1] * 2
    assert rows(DataLoader(both, 4)) == [[[i, i] for i in (0.0, 1.0, 2.0, 0.0)], [[1.0, 1.0]]]
    with pytest.raises(IndexError, match="ConcatDataset: item 5 of 5"):
        both[5]
    with pytest.raises(ValueError, match="no datasets given"):
        ConcatDataset([])


def test_tensors():
    data = TensorDataset(ndl.ones(4, 2), ndl.Tensor([1, 2, 3, 4]))
    x, y = next(iter(DataLoader(data, 3)))
    assert x.shape == (3, 2) and y.tolist() == [1, 2, 3]


# ---- Samplers ------------------------------------------------------------


def test_random_sampler_with_replacement():
    np.random.seed(0)
    drawn = list(RandomSampler(5, replacement=True, num_samples=40))
    assert len(drawn) == 40 and set(drawn) == set(range(5))
    assert len(set(RandomSampler(5, num_samples=3))) == 3 == len(RandomSampler(5, num_samples=3))
    with pytest.raises(ValueError, match="num_samples = 6 of 5 without replacement"):
        RandomSampler(5, num_samples=6)


def test_the_course_s_order_is_the_same_for_iter_and_for_arrays():
    np.random.seed(4)
    expected = np.random.permutation(6).tolist()
    np.random.seed(4)
    loader = DataLoader(NDArrayDataset(np.arange(6)), 2, shuffle=True)
    assert [i for (x,) in loader for i in x.tolist()] == expected
    np.random.seed(4)
    assert list(RandomSampler(6)) == expected


def test_weighted_and_subset_samplers():
    assert set(WeightedRandomSampler([0, 1, 3], 30, seed=0)) == {1, 2}
    assert sorted(WeightedRandomSampler([0, 1, 3], 2, replacement=False, seed=0)) == [1, 2]
    with pytest.raises(ValueError, match="num_samples = 3 of 2 without replacement"):
        WeightedRandomSampler([0, 1, 3], 3, replacement=False)
    loader = DataLoader(Items(9), 2, sampler=SubsetRandomSampler([3, 5, 8]))
    assert sorted(i for _, y in loader for i in y.tolist()) == [3, 5, 8] and len(loader) == 2


# ---- Streams ------------------------------------------------------------


class Count(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return ((np.full(2, i, "float32"), i) for i in range(self.n))


def test_streams():
    loader = DataLoader(Count(5), 2, pin_memory=True, persistent_workers=False)
    for _ in range(2):
        assert [y.tolist() for _, y in loader] == [[0, 1], [2, 3], [4]]
    assert [y.tolist() for _, y in DataLoader(Count(5), 2, drop_last=True, num_workers=2)] == [[0, 1], [2, 3]]
    for call, kind, message in (
        (lambda: len(loader), TypeError, "an IterableDataset has no length"),
        (lambda: loader.state_dict(), TypeError, "cannot go on from a place"),
        (lambda: DataLoader(Count(5), 2, shuffle=True), ValueError, "expected no shuffle and no sampler"),
        (lambda: list(DataLoader(IterableDataset())), NotImplementedError, "IterableDataset has no __iter__"),
    ):
        with pytest.raises(kind, match=message):
            call()


# ---- Tables ------------------------------------------------------------


def test_csv(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress("a,b,kind\n1,2.5,x\n3,,y\n".encode("utf-8-sig")))
    data = CSVDataset(path, target="kind", columns=["b", "a"])
    np.testing.assert_array_equal(data.arrays[0], np.array([[2.5, 1], [np.nan, 3]], "float32"))
    assert data.classes == ["x", "y"] and data.arrays[1].tolist() == [0, 1] and data.takes_arrays
    assert CSVDataset(path, target="a", columns=["b"]).arrays[1].dtype == np.int64
    assert next(iter(DataLoader(data, 2)))[0].shape == (2, 2)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("a,b\n1,x\n", {}, "column 'b' holds texts, expected numbers"),
        ("a,b\n1,2\n", {"target": "c"}, "no column 'c'; there are a, b"),
        ("a,b\n1\n", {}, "row 1 has 1 entries, expected 2"),
        ("a,b\n", {}, "1 lines, expected the names of the columns"),
        ("a\n1\n", {"target": "a"}, "no columns of features"),
        ("a\n\xff", {}, "no text in UTF-8"),
    ],
)
def test_csv_mistakes(tmp_path, text, arguments, message):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError) as caught:
        CSVDataset(path, **arguments)
    assert message in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_missing_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setitem(sys.modules, "PIL", None)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(b"")
    for call, extra in (
        (lambda: ParquetDataset("x"), "ParquetDataset needs pyarrow: pip install needle-nn[parquet]"),
        (lambda: HuggingFaceDataset("x"), "HuggingFaceDataset needs datasets: pip install needle-nn[datasets]"),
        (lambda: ImageFolder(tmp_path)[0], "ImageFolder needs PIL: pip install needle-nn[images]"),
    ):
        with pytest.raises(ModuleNotFoundError) as caught:
            call()
        assert str(caught.value) == extra


def test_hugging_face_by_what_it_answers():
    class Source:
        column_names = ("text", "label")

        def with_format(self, kind):
            assert kind == "numpy"
            return self

        def __getitem__(self, i):
            return {"text": np.full(2, i), "label": np.int64(i)}

        def __len__(self):
            return 3

    assert HuggingFaceDataset(Source())[1]["label"] == 1
    x, y = next(iter(DataLoader(HuggingFaceDataset(Source(), columns=["text", "label"]), 3)))
    assert x.shape == (3, 2) and y.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="no column 'texts'; there are text, label"):
        HuggingFaceDataset(Source(), columns=["texts"])
    with pytest.raises(TypeError, match="expected a dataset or its name, got list"):
        HuggingFaceDataset([1])


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"a": [1, 2], "b": [0.5, 1.5], "y": [3, 4]}), tmp_path / "t.parquet")
    data = ParquetDataset(tmp_path / "t.parquet", target="y")
    assert data.columns == ["a", "b"] and data.arrays[1].tolist() == [3, 4]


def test_image_folder(tmp_path):
    for kind in ("b", "a"):
        (tmp_path / kind).mkdir()
        np.save(tmp_path / kind / "1.npy", np.full((4, 5), 255, "uint8"))
    (tmp_path / "a" / "notes.txt").write_text("none")
    data = ImageFolder(tmp_path, transforms=[lambda image: image[:, ::-1] * 2], channels=1)
    assert data.classes == ["a", "b"] and len(data) == 2
    x, y = next(iter(DataLoader(data, 2)))
    assert x.shape == (2, 1, 4, 5) and (x.numpy() == 2).all() and y.tolist() == [0, 1]
    for call, message in (
        (lambda: ImageFolder(tmp_path)[0], "has shape (4, 5, 1), expected (height, width, 3)"),
        (lambda: ImageFolder(tmp_path / "a"), "no images in 0 folders of classes"),
        (lambda: ImageFolder(tmp_path / "c"), "no such folder"),
        (lambda: ImageFolder(tmp_path, channels=2), "channels = 2: expected 1 or 3"),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert message in str(caught.value)
