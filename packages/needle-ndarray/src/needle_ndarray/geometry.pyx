"""How a window moves over an image: the numbers of convolutions and poolings, and the shapes that fit them."""

from operator import index as as_index

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int* overflow) except? -1

LARGEST = MOST  # of strides, paddings, dilations and windows: no sum or product of these overflows


cdef inline bint is_number(object given, int least, Py_ssize_t* out) except -1:
    """Read an int that may stand here; False for anything else, which leaves the number what it was"""
    cdef int overflow = 0
    cdef long long number
    if type(given) is not int:
        return False
    number = PyLong_AsLongLongAndOverflow(given, &overflow)
    if overflow or not least <= number <= MOST:
        return False
    out[0] = number
    return True


cdef int read_pair(str name, str what, object given, int least, Py_ssize_t* down, Py_ssize_t* right) except -1:
    """An int for both axes, or one for each"""
    a = b = given
    if type(given) is tuple and len(<tuple> given) == 2:
        a, b = (<tuple> given)[0], (<tuple> given)[1]
    if is_number(a, least, down) and is_number(b, least, right):
        return 0
    try:
        a, b = given if isinstance(given, (tuple, list)) else (given, given)
        a, b = as_index(a), as_index(b)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: {what} {given!r}: expected an int or a pair of ints") from None
    if not (least <= a <= MOST and least <= b <= MOST):
        raise ValueError(f"{name}: {what} {given!r}: expected {least} to {LARGEST}")
    down[0], right[0] = a, b
    return 0


def pair(str name not None, str what not None, given, int least=1):
    """An int for both axes, or one for each."""
    cdef Py_ssize_t down, right
    read_pair(name, what, given, least, &down, &right)
    return down, right


cdef class Geometry:
    """Stride, padding, dilation and groups, checked once.

    >>> Geometry("conv2d", 2, padding=1).convolved((1, 5, 5, 2), (3, 3, 2, 4))
    (1, 3, 3, 4)
    """

    def __cinit__(self):
        self.sh = self.sw = self.dh = self.dw = self.groups = 1     # some are divided by: a bare __new__ has them too

    def __init__(self, str name not None, stride=1, padding=0, dilation=1, groups=1):
        cdef Py_ssize_t same
        self.name = name
        read_pair(name, "stride", stride, 1, &self.sh, &self.sw)
        read_pair(name, "dilation", dilation, 1, &self.dh, &self.dw)
        if isinstance(padding, (tuple, list)) and len(padding) == 2 and isinstance(padding[0], (tuple, list)):
            read_pair(name, "padding", padding[0], 0, &self.top, &self.bottom)
            read_pair(name, "padding", padding[1], 0, &self.left, &self.right)
        else:
            read_pair(name, "padding", padding, 0, &self.top, &self.left)
            self.bottom, self.right = self.top, self.left
        read_pair(name, "groups", groups, 1, &self.groups, &same)

    @property
    def stride(self):
        return self.sh, self.sw

    @property
    def padding(self):
        """((top, bottom), (left, right))"""
        return (self.top, self.bottom), (self.left, self.right)

    @property
    def dilation(self):
        return self.dh, self.dw

    @property
    def of_verb(self):
        """The arguments of the verb conv2d"""
        return self.stride, self.padding, self.dilation, self.groups

    cdef int fit(self, Py_ssize_t h, Py_ssize_t w, Py_ssize_t kh, Py_ssize_t kw, Py_ssize_t* oh, Py_ssize_t* ow) except -1:
        """How often a window fits an image, down and to the right"""
        if max(h, w) > HIGHEST or max(kh, kw) > MOST:
            raise ValueError(f"{self.name}: an image of {(h, w)} and a window of {(kh, kw)}: more than 64 bits can count")
        cdef Py_ssize_t down = h + self.top + self.bottom, along = w + self.left + self.right
        cdef Py_ssize_t tall = (kh - 1) * self.dh + 1, wide = (kw - 1) * self.dw + 1
        if kh < 1 or kw < 1 or tall > down or wide > along:
            dilated = f" (dilated: {(tall, wide)})" if self.dilation != (1, 1) else ""
            raise ValueError(f"{self.name}: a window of {(kh, kw)}{dilated} does not fit a padded image of {(down, along)}")
        oh[0], ow[0] = (down - tall) // self.sh + 1, (along - wide) // self.sw + 1
        return 0

    cdef int check_channels(self, Py_ssize_t c, const Py_ssize_t* weight) except -1:
        """Whether a weight (KH, KW, C / groups, F) is one for images of c channels"""
        if c % self.groups or weight[3] % self.groups or c // self.groups != weight[2]:
            raise ValueError(
                f"{self.name}: {c} channels and weight {(weight[0], weight[1], weight[2], weight[3])} in {self.groups} groups:"
                f" expected a weight ({weight[0]}, {weight[1]}, {c} / {self.groups}, a multiple of {self.groups})"
            )
        return 0

    def places(self, image, window):
        """How often a window fits an image, down and to the right."""
        cdef Py_ssize_t oh, ow
        (h, w), (kh, kw) = image, window
        self.fit(h, w, kh, kw, &oh, &ow)
        return oh, ow

    def convolved(self, x, weight):
        """The shape of conv2d's result, for shapes (N, H, W, C) and (KH, KW, C / groups, F)"""
        cdef Py_ssize_t oh, ow
        cdef Py_ssize_t sizes[4]
        n, h, w, c = x
        sizes[0], sizes[1], sizes[2], sizes[3] = weight
        self.check_channels(c, sizes)
        self.fit(h, w, sizes[0], sizes[1], &oh, &ow)
        return n, oh, ow, sizes[3]
