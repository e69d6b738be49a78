"""Which dtype a tensor gets."""

from needle.autograd.values cimport Op

cdef int FLOAT32                        # its code: those of integers are smaller, that of float64 is larger
cdef int settled_from                   # the code from which a result may have a dtype that `settled` has to change

cpdef object get_default_dtype()
cdef object to_array(object values, object device, object dtype)
cdef object settled(Op op, object data, tuple inputs)
