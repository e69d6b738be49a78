"""How a window moves over an image: the numbers of convolutions and poolings, and the shapes that fit them."""

from operator import index as as_index

LARGEST = 2**31 - 1  # of strides, paddings, dilations and windows: no sum or product of these overflows


cpdef tuple pair(str name, str what, object given, int least=1):
    """An int for both axes, or one for each."""
    try:
        down, right = given if isinstance(given, (tuple, list)) else (given, given)
        down, right = as_index(down), as_index(right)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: {what} {given!r}: expected an int or a pair of ints") from None
    if not (least <= down <= LARGEST and least <= right <= LARGEST):
        raise ValueError(f"{name}: {what} {given!r}: expected {least} to {LARGEST}")
    return down, right


cpdef tuple both_sides(str name, object given):
    """Padding as ((top, bottom), (left, right))."""
    if isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], (tuple, list)):
        return pair(name, "padding", given[0], 0), pair(name, "padding", given[1], 0)
    down, right = pair(name, "padding", given, 0)
    return (down, down), (right, right)


cdef class Geometry:
    """Stride, padding, dilation and groups, checked once.

    >>> Geometry("conv2d", 2, padding=1).convolved((1, 5, 5, 2), (3, 3, 2, 4))
    (1, 3, 3, 4)
    """

    def __init__(self, str name not None, stride=1, padding=0, dilation=1, groups=1):
        self.name = name
        self.stride, self.dilation = pair(name, "stride", stride), pair(name, "dilation", dilation)
        self.padding = both_sides(name, padding)
        self.groups = pair(name, "groups", groups)[0]

    @property
    def of_verb(self):
        """The arguments of the verb conv2d"""
        return self.stride, self.padding, self.dilation, self.groups

    cpdef tuple places(self, image, window):
        """How often a window fits an image, down and to the right."""
        (h, w), (kh, kw), (sh, sw), (dh, dw) = image, window, self.stride, self.dilation
        (top, bottom), (left, right) = self.padding
        down, along, tall, wide = h + top + bottom, w + left + right, (kh - 1) * dh + 1, (kw - 1) * dw + 1
        if kh < 1 or kw < 1 or tall > down or wide > along:
            dilated = f" (dilated: {(tall, wide)})" if self.dilation != (1, 1) else ""
            raise ValueError(f"{self.name}: a window of {(kh, kw)}{dilated} does not fit a padded image of {(down, along)}")
        return (down - tall) // sh + 1, (along - wide) // sw + 1

    cpdef tuple convolved(self, x, weight):
        """The shape of conv2d's result, for shapes (N, H, W, C) and (KH, KW, C / groups, F)"""
        (n, h, w, c), (kh, kw, count, f), groups = x, weight, self.groups
        if c % groups or f % groups or c // groups != count:
            raise ValueError(
                f"{self.name}: {c} channels and weight {tuple(weight)} in {groups} groups:"
                f" expected a weight ({kh}, {kw}, {c} / {groups}, a multiple of {groups})"
            )
        oh, ow = self.places((h, w), (kh, kw))
        return n, oh, ow, f
