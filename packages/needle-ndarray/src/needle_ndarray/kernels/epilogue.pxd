cdef enum:
    MOST_STEPS = 8

cdef struct Step:               # y = y op operand, or op(y)
    int op
    bint unary
    bint swapped                # operand op y
    bint whole                  # the operand has an element for each of y; else one for each of its channels
    char** operand              # where its first element is

cdef struct Epilogue:           # what a convolution does to its result, in this order
    int count
    Step steps[MOST_STEPS]

cdef bint has_step(bint unary, int op) noexcept nogil
cdef void finish(const Epilogue* epilogue, int dtype, char* y, Py_ssize_t start, Py_ssize_t n, Py_ssize_t f) noexcept nogil
