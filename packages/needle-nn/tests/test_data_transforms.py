"""Transforms against NumPy, by their numbers and by their errors."""
# ruff: noqa: NPY002  (the course draws from the legacy generator)

import numpy as np
import pytest

from needle_nn.data import (
    Compose,
    Normalize,
    RandomCrop,
    RandomFlipHorizontal,
    RandomRotation,
    RandomScale,
    Transform,
    random_source,
)
from needle_nn.data.sources import drawing_from, generator
from needle_nn.data.transforms import resample, rotate

IMAGE = np.random.default_rng(0).random((5, 7, 3), dtype=np.float32)
SQUARE = np.random.default_rng(1).random((6, 6, 2), dtype=np.float32)


@pytest.mark.parametrize("padding", [0, 1, 3, 5, 9])
def test_crop_is_a_padded_image_cut_out(padding):
    crop = RandomCrop(padding)
    padded = np.pad(IMAGE, ((padding, padding), (padding, padding), (0, 0)))
    for seed in range(20):
        np.random.seed(seed)
        top, left = padding + np.random.RandomState(seed).randint(-padding, padding + 1, size=2)
        np.testing.assert_array_equal(crop(IMAGE), padded[top : top + 5, left : left + 7], strict=True)


@pytest.mark.parametrize("p", [0, 0.3, 1])
def test_flip(p):
    np.random.seed(0)
    random, flip, flips = np.random.RandomState(0), RandomFlipHorizontal(p), 0
    for _ in range(50):
        turned = random.rand() < p
        np.testing.assert_array_equal(flip(IMAGE), IMAGE[:, ::-1] if turned else IMAGE)
        flips += turned
    assert flips == {0: 0, 1: 50}.get(p, flips) and (p != 0.3 or 5 < flips < 25)


@pytest.mark.parametrize(("degrees", "turns"), [(0, 0), (90, 1), (180, 2), (-90, 3), (270, 3)])
def test_quarter_turns_are_exact(degrees, turns):
    np.testing.assert_allclose(rotate(SQUARE, degrees), np.rot90(SQUARE, turns), atol=1e-6)


def test_a_turn_and_back():
    """A smooth image comes back, where the corners have not been cut off."""
    r, c = np.mgrid[:21, :21] / 20 - 0.5
    image = np.exp(-8 * ((r - 0.1) ** 2 + c**2))[..., None]
    turned = rotate(image, 30)
    assert np.abs(turned - image).max() > 0.1
    np.testing.assert_allclose(rotate(turned, -30)[5:-5, 5:-5], image[5:-5, 5:-5], atol=0.02)


def test_resample_is_bilinear():
    """Half the size: each pixel lies between four, the border falls to 0 within one pixel."""
    image = np.arange(16.0).reshape(4, 4, 1)
    np.testing.assert_allclose(resample(image, np.eye(2) / 2)[1:3, 1:3, 0], [[6.25, 6.75], [8.25, 8.75]])
    np.testing.assert_allclose(
        resample(np.ones((4, 4, 1)), np.eye(2) * 2)[:, :, 0], np.outer([0, 1, 1, 0], [0, 1, 1, 0])
    )
    assert resample(np.full((3, 3, 1), 7, dtype=np.uint8), np.eye(2)).dtype == np.uint8


def test_scale_keeps_the_middle():
    for factor in (0.5, 1.0, 2.0):
        out = RandomScale(factor, factor)(np.full((9, 9, 1), 2.0, dtype=np.float32))
        assert out.shape == (9, 9, 1) and out.dtype == np.float32 and out[4, 4, 0] == 2
        assert (out[0, 0, 0] == 2) == (factor >= 1)


DRAWS = {
    "rotation": (RandomRotation(30), lambda r: rotate(IMAGE, r.uniform(-30, 30))),
    "scale": (RandomScale(0.5, 2), lambda r: resample(IMAGE, np.eye(2) / r.uniform(0.5, 2))),
}


@pytest.mark.parametrize("case", DRAWS)
def test_what_is_drawn(case):
    transform, expected = DRAWS[case]
    np.random.seed(2)
    np.testing.assert_array_equal(transform(IMAGE), expected(np.random.RandomState(2)))


def test_normalize_by_channel():
    mean, std = [0.1, 0.2, 0.3], [1, 2, 4]
    out = Normalize(mean, std)(IMAGE)
    np.testing.assert_allclose(out, (IMAGE - np.array(mean)) / np.array(std), rtol=1e-5, atol=1e-7)
    assert out.dtype == np.float32


def test_compose_applies_in_order():
    np.random.seed(0)
    both = Compose([RandomCrop(2), RandomFlipHorizontal(0.5), Normalize(0.5, 0.5)])(IMAGE)
    np.random.seed(0)
    np.testing.assert_array_equal(both, Normalize(0.5, 0.5)(RandomFlipHorizontal(0.5)(RandomCrop(2)(IMAGE))))


def test_a_source_holds_for_its_block():
    source = generator(1)
    with drawing_from(source):
        assert random_source() is source
        inside = RandomCrop(2)(IMAGE)
    assert random_source() is np.random
    with drawing_from(generator(1)):
        np.testing.assert_array_equal(inside, RandomCrop(2)(IMAGE))


def test_images_are_not_changed_in_place():
    kept = IMAGE.copy()
    for transform in (RandomCrop(2), RandomFlipHorizontal(1), RandomRotation(10), RandomScale(), Normalize(0.5, 2)):
        transform(IMAGE)
        np.testing.assert_array_equal(IMAGE, kept)


ERRORS = {
    "flip p": (lambda: RandomFlipHorizontal(1.5), r"p must be in \[0, 1\], got 1.5"),
    "crop": (lambda: RandomCrop(-1), "padding must not be negative, got -1"),
    "rotation": (lambda: RandomRotation(-3), r"degrees must be in \[0, 180\], got -3"),
    "scale": (lambda: RandomScale(2, 1), "expected 0 < low <= high, got low=2, high=1"),
    "scale 0": (lambda: RandomScale(0, 1), "expected 0 < low <= high"),
    "std": (lambda: Normalize(0, [1, 0]), r"std must be positive, got \[1, 0\]"),
    **{
        type(t).__name__: (
            lambda t=t: t(np.ones((4, 4))),
            rf"{type(t).__name__}: expected an image H x W x C, got shape \(4, 4\)",
        )
        for t in (RandomCrop(), RandomFlipHorizontal(), RandomRotation(1), RandomScale())
    },
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    make, message = ERRORS[case]
    with pytest.raises(ValueError, match=message):
        make()


def test_the_base_asks_for_call():
    with pytest.raises(NotImplementedError, match="Transform has no __call__"):
        Transform()(IMAGE)
