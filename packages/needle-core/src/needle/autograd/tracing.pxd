"""Traces: see tracing.pyx."""

from needle.autograd.values cimport Value

cpdef object handed_out(Value value)
cdef int note_read(Value value) except -1
cdef int note_write(Value value) except -1
