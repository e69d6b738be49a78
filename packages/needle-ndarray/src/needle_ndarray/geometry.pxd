cdef class Geometry:
    cdef readonly str name
    cdef readonly tuple stride          # pairs (down, right), each number at most 2^31 - 1
    cdef readonly tuple padding         # ((top, bottom), (left, right))
    cdef readonly tuple dilation
    cdef readonly object groups

    cpdef tuple places(self, image, window)
    cpdef tuple convolved(self, x, weight)
