# Sums of a row in LANES partial sums side by side, which compilers keep in vector registers. Runs of them are short; longer rows
# add them up in double.

from needle_ndarray.kernels.views cimport F

cdef enum:
    LANES = 32              # too many to be unrolled, which is what makes a vector loop of them
    RUN = 2048              # elements of a row added up before they go to a double: 64 to a lane


cdef inline void clear(F* lane) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(LANES):
        lane[k] = 0


cdef inline double folded(F* lane) noexcept nogil:
    """The sum of the lanes, by halves of fixed size: a loop over sizes costs as much as a row of 300"""
    cdef Py_ssize_t k
    for k in range(16):
        lane[k] += lane[16 + k]
    for k in range(8):
        lane[k] += lane[8 + k]
    for k in range(4):
        lane[k] += lane[4 + k]
    return (lane[0] + lane[2]) + (lane[1] + lane[3])
