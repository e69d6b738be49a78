"""IDX files: what they hold, and one clear line for every kind of damage."""

import gzip
import os
import tracemalloc

import data_goldens as golden
import numpy as np
import pytest

import needle_nn.data as data
from needle_nn.data import files
from needle_nn.data.mnist import read_idx

GOOD = golden.idx(golden.images())


@pytest.mark.parametrize("packed", [True, False])
def test_what_a_pair_of_files_holds(tmp_path, packed):
    dataset = data.MNISTDataset(*golden.mnist(tmp_path, packed=packed))
    expected = golden.images().reshape(5, 784).astype(np.float32) / np.float32(255)
    assert len(dataset) == 5
    assert dataset.X.dtype == np.float32 and dataset.y.dtype == np.uint8
    np.testing.assert_array_equal(dataset.X, expected)
    np.testing.assert_array_equal(dataset.y, golden.labels())
    X, y = data.parse_mnist(*golden.mnist(tmp_path, packed=packed))
    np.testing.assert_array_equal(X, expected)
    np.testing.assert_array_equal(y, golden.labels())


INDICES = [3, -1, np.int64(2), slice(1, 4), [4, 0], np.array([2]), np.array([], dtype=int), np.arange(5) % 2 == 0]


@pytest.mark.parametrize("index", INDICES, ids=repr)
@pytest.mark.parametrize("flip", [False, True])
def test_indexing(tmp_path, index, flip):
    """One index gives a row, several give rows; transforms see images 28 × 28 × 1."""
    shapes = []

    def reverse(image):
        shapes.append(image.shape)
        return image[:, ::-1]

    dataset = data.MNISTDataset(*golden.mnist(tmp_path), transforms=[reverse] if flip else None)
    x, y = dataset[index]
    expected = golden.images()[..., ::-1] if flip else golden.images()
    expected = (expected.astype(np.float32) / np.float32(255)).reshape(5, 784)[index]
    np.testing.assert_array_equal(x, expected, strict=True)
    np.testing.assert_array_equal(y, golden.labels()[index])
    assert set(shapes) <= {(28, 28, 1)} and len(shapes) == (expected.size // 784) * flip


@pytest.mark.parametrize("make", ["mnist", "cifar", "digits"])
def test_a_byte_for_each_pixel(tmp_path, make):
    """Items are made of bytes, the same float32 as those of `X`; once that is asked for, what is written to it is seen."""
    dataset = {
        "mnist": lambda: data.MNISTDataset(*golden.mnist(tmp_path)),
        "cifar": lambda: data.CIFAR10Dataset(golden.cifar(tmp_path), train=True),
        "digits": data.DigitsDataset,
    }[make]()
    before = [dataset[i][0] for i in (2, slice(0, 3), np.array([1, 0]), slice(0, 0))]
    ((batch, labels), *_) = data.DataLoader(dataset, 4)
    assert batch.dtype == "float32" and labels.dtype == dataset.y.dtype
    assert dataset.pixels.dtype == np.uint8 and dataset.pixels.nbytes == dataset.pixels.size
    X = dataset.X
    assert X.dtype == np.float32 and dataset.X is X and dataset.pixels is None and 0 <= X.min() < X.max() <= 1
    for index, items in zip((2, slice(0, 3), np.array([1, 0]), slice(0, 0)), before, strict=True):
        np.testing.assert_array_equal(items, X[index], strict=True)
    np.testing.assert_array_equal(batch.numpy(), X[:4])
    X[2] = 0.25
    assert (dataset[2][0] == 0.25).all()
    dataset.X = dataset.X - 1
    assert (dataset[2][0] == -0.75).all()


def test_transforms_draw_image_by_image(tmp_path):
    """The numbers of np.random.seed are the course's: crop and flip of one image, then of the next."""
    transforms = [data.RandomCrop(2), data.RandomFlipHorizontal(0.5)]
    dataset = data.MNISTDataset(*golden.mnist(tmp_path), transforms=transforms)
    random = np.random.RandomState(3)
    expected = []
    for image in dataset.X.reshape(5, 28, 28):
        down, right = random.randint(-2, 3, size=2)
        image = np.pad(image, 2)[2 + down : 30 + down, 2 + right : 30 + right]
        expected.append(image[:, ::-1] if random.rand() < 0.5 else image)
    np.random.seed(3)  # noqa: NPY002
    np.testing.assert_array_equal(dataset[np.arange(5)][0], np.reshape(expected, (5, 784)))
    np.random.seed(3)  # noqa: NPY002
    np.testing.assert_array_equal([dataset[i][0] for i in range(5)], np.reshape(expected, (5, 784)))


# What is in the place of the images: content, packed, what the message says.
DAMAGE = {
    "empty": (b"", False, "the file is empty"),
    "packed nothing": (b"", True, "not an IDX file: it begins with b''"),
    "text": (
        b"P5 28 28 255 and so on",
        False,
        "not an IDX file: it begins with b'P5 2', expected b'\\x00\\x00\\x08\\x03'",
    ),
    "html": (b"<html>404</html>", True, "not an IDX file"),
    "labels": (golden.idx(golden.labels()), True, "IDX file of rank 1 (labels), expected rank 3 (images)"),
    "rank 4": (golden.idx(golden.images()[None]), True, "rank 4 (something else), expected rank 3"),
    "int32": (golden.idx(golden.images(), code=0x0C), True, "IDX file of int32, expected uint8"),
    "no such type": (golden.idx(golden.images(), code=0x0A), True, "not an IDX file"),
    "header cut": (GOOD[:9], False, "cut short in its header: 9 bytes of 16"),
    "magic cut": (GOOD[:3], False, "not an IDX file"),
    "no images": (golden.idx(golden.images(0)), True, "holds no images: its shape is (0, 28, 28)"),
    "no columns": (golden.idx(golden.images(), shape=(5, 28, 0)), True, "holds no images"),
    "cut, plain": (GOOD[:-1], False, "expected 3920 bytes of images (5, 28, 28), found 3919: the file is cut short"),
    "cut, packed": (GOOD[:-1], True, "expected 3920 bytes of images (5, 28, 28), found 3919: the file is cut short"),
    "longer, plain": (GOOD + b"x", False, "expected 3920 bytes of images (5, 28, 28), found more"),
    "longer, packed": (GOOD + b"x" * 100_000, True, "expected 3920 bytes of images (5, 28, 28), found more"),
    "count too large": (
        golden.idx(golden.images(), shape=(900, 28, 28)),
        False,
        "but the file holds at most 3936 bytes",
    ),
    "huge": (golden.idx(golden.images(), shape=(2**32 - 1,) * 3), True, "more than the limit of 1073741824"),
    "large, cannot be": (golden.idx(golden.images(), shape=(2**20, 28, 28)), True, "but the file holds at most"),
    "fewer than labels": (golden.idx(golden.images(4)), True, "5 labels, but"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage(tmp_path, case):
    content, packed, message = DAMAGE[case]
    _, good_labels = golden.mnist(tmp_path)
    path = golden.write(tmp_path / "damaged", content, packed)
    with pytest.raises(ValueError) as caught:
        data.MNISTDataset(path, good_labels)
    said = str(caught.value)
    assert message in said and path in said and "\n" not in said


PACKING = {
    "cut": (gzip.compress(GOOD)[:-20], "damaged gzip file"),
    "checksum": (gzip.compress(GOOD)[:-8] + bytes(8), "damaged gzip file: CRC"),
    "bits": (gzip.compress(GOOD)[:40] + b"\xff" * 40 + gzip.compress(GOOD)[80:], "damaged gzip file"),
    "magic only": (b"\x1f\x8b", "damaged gzip file"),
    "something behind": (gzip.compress(GOOD) + b"behind", "damaged gzip file: Not a gzipped file"),
}


@pytest.mark.parametrize("case", PACKING)
def test_damaged_packing(tmp_path, case):
    content, message = PACKING[case]
    path = golden.write(tmp_path / "damaged", content)
    with pytest.raises(ValueError, match=message) as caught:
        data.MNISTDataset(path, path)
    assert path in str(caught.value)


def test_swapped_files(tmp_path):
    image_file, label_file = golden.mnist(tmp_path)
    with pytest.raises(ValueError, match=r"labels: IDX file of rank 1 \(labels\), expected rank 3 \(images\)"):
        data.MNISTDataset(label_file, image_file)


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_not_a_regular_file(tmp_path, kind):
    path = tmp_path / kind
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(ValueError, match="not a regular file"):
        data.MNISTDataset(path, path)


def test_missing_files_are_named(tmp_path):
    image_file, _ = golden.mnist(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        data.MNISTDataset(tmp_path / "nowhere", image_file)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        data.MNISTDataset(image_file, tmp_path / "nowhere")


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    """A packed gigabyte of zeros: reading stops one byte after what the header announces."""
    read = []

    class Counting(gzip.GzipFile):
        def readinto(self, buffer):
            read.append(len(buffer))
            return super().readinto(buffer)

        def read(self, size=-1):
            read.append(size)
            return super().read(size)

    monkeypatch.setattr(files.gzip, "GzipFile", Counting)
    bomb = gzip.compress(golden.idx(golden.images())) + gzip.compress(bytes(1 << 20)) * 1024
    path = golden.write(tmp_path / "bomb", bomb)
    with pytest.raises(ValueError, match="found more"):
        data.MNISTDataset(path, path)
    assert min(read) > 0 and sum(read) < 10_000


@pytest.mark.parametrize("shape", [(1 << 10, 1 << 10, 1 << 10), (2 << 10, 1 << 9, 1 << 9), (500, 512, 512)])
def test_a_bomb_that_keeps_its_word_is_not_unpacked(tmp_path, shape):
    """A megabyte that truly holds the gigabyte it announces, or a tenth of it: refused by the header, with the numbers."""
    zeros = gzip.compress(bytes(1 << 20))
    path = golden.write(tmp_path / "bomb", gzip.compress(golden.idx(np.empty(0), shape=shape)) + zeros * 1024)
    size, held = os.path.getsize(path), np.prod(shape)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as caught:
            data.MNISTDataset(path, path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert f"expected {held} bytes of images {shape}, but the file holds at most {100 * size} bytes" in str(
        caught.value
    )


def test_small_files_may_hold_much(tmp_path):
    """Blank images, as people make them to try something: 1000 times their packed size."""
    path = golden.write(tmp_path / "blank", golden.idx(np.zeros((60_000, 28, 28), np.uint8)), packed=True)
    assert os.path.getsize(path) * 900 < 60_000 * 784
    assert not read_idx(path, 3).any()


def test_limit_on_the_file_itself(tmp_path, monkeypatch):
    image_file, label_file = golden.mnist(tmp_path)
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="more than the limit of 1000"):
        data.MNISTDataset(image_file, label_file)
