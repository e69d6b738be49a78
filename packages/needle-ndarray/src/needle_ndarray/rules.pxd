from needle_ndarray.kernels.views cimport View
from needle_ndarray.ndarray cimport NDArray

cdef enum:
    MOST_SYMBOLS = 12
    MOST_AXES = 8

ctypedef void* Borrowed                 # a reference that is not counted: its owner waits for the call to return

cdef struct Axis:                       # times * symbol + plus; symbol 0 is 0
    int symbol
    Py_ssize_t times
    Py_ssize_t plus
    Py_ssize_t least

cdef struct Spec:                       # of one array
    int dtype
    bint cast                           # functions cast integers first; for a verb they are of that dtype
    bint optional
    bint in_place
    int like                            # an array of the verb that has the same axes and dtype, -1: none
    bint begins                         # given to the function, which makes a result of it; the verb does not see it
    bint rest                           # `...` after the first `before` axes
    bint may_lead                       # an axis of size 1 may come before the others
    int before
    int count
    Axis axes[8]

cdef struct Sizes:                      # what the symbols stand for; -1: nothing yet
    Py_ssize_t at[12]
    const Py_ssize_t* rest              # the shape of an array that is alive as long as this
    int rest_count
    int dtype


cdef class Rule:
    cdef readonly str verb
    cdef readonly str name              # of the function or op
    cdef readonly str text
    cdef readonly tuple names           # the verb's parameters
    cdef readonly tuple labels          # what users call them
    cdef readonly int inputs            # the first so many are inputs, the others results
    cdef tuple symbols
    cdef int known                      # how many symbols there are
    cdef bint begins                    # whether one of them only begins a result
    cdef bint large                     # whether arrays that only a broadcast view can be are fine
    cdef int count
    cdef Spec specs[12]

    cdef int guard(self, Borrowed* given, View* views) except -1
    cdef tuple before(self, int i, Borrowed* given)
    cdef int walk(self, tuple lists, bint for_kernel) except -1
    cdef int check_memory(self, int i, NDArray a) except -1
    cdef object refusal(self, int i, object given, tuple before, str number=*, NDArray first=*)
    cdef str shape_of(self, int i, const Sizes* sizes)
    cdef str reason(self, int i, tuple before, str number)


cpdef double number(str what, str name, object value, double least=*) except? -1
