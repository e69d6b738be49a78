"""Under which name a class is known."""

from cpython.object cimport PyTypeObject


cdef inline void show_in_autograd(type cls, const char* name) noexcept:
    """Name a class after the module that users import it from, in messages, pickles and help: `__module__ =` of a C type."""
    (<PyTypeObject*> cls).tp_name = name
