cdef enum:
    MOST = 0x7fffffff                   # of strides, paddings, dilations and windows,

cdef extern from *:
    """
    #define NEEDLE_HIGHEST ((Py_ssize_t) 1 << 60)
    """
    const Py_ssize_t HIGHEST "NEEDLE_HIGHEST"       # and of images


cdef class Geometry:
    cdef readonly str name
    cdef Py_ssize_t sh, sw, dh, dw, top, bottom, left, right
    cdef readonly Py_ssize_t groups

    cdef int fit(self, Py_ssize_t h, Py_ssize_t w, Py_ssize_t kh, Py_ssize_t kw, Py_ssize_t* oh, Py_ssize_t* ow) except -1
    cdef int check_channels(self, Py_ssize_t c, const Py_ssize_t* weight) except -1


cdef int read_pair(str name, str what, object given, int least, Py_ssize_t* down, Py_ssize_t* right) except -1
