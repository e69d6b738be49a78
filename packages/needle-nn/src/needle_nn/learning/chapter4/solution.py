"""Chapter 4 by Needle itself: its NDArray makes the views."""

from typing import NamedTuple

from needle_ndarray import NDArray, empty


class View(NamedTuple):
    shape: tuple
    strides: tuple
    offset: int = 0


def array(view):
    """An NDArray that looks as the view says at memory that is large enough."""
    extent = view.offset + sum(max(0, (n - 1) * s) for n, s in zip(view.shape, view.strides, strict=True)) + 1
    memory = empty((extent,))
    return NDArray.make(view.shape, view.strides, memory.device, memory._handle, view.offset)


def view_of(a):
    return View(a.shape, a.strides, a.offset)


def compact_strides(shape):
    return NDArray.compact_strides(shape)


def is_compact(view):
    return array(view).is_compact()


def permute(view, axes):
    return view_of(array(view).permute(axes))


def broadcast_to(view, shape):
    try:
        return view_of(array(view).broadcast_to(shape))
    except AssertionError as error:  # the course's class of error
        raise ValueError(str(error)) from None


def slice_axis(view, axis, start, stop, step):
    key = [slice(None)] * len(view.shape)
    key[axis] = slice(start, stop, step)
    return view_of(array(view)[tuple(key)])


def flip(view, axis):
    key = [slice(None)] * len(view.shape)
    key[axis] = slice(None, None, -1)
    return view_of(array(view)[tuple(key)])
