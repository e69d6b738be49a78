"""The switches of a thread, as the engine reads them; `needle.modes` sets them."""

from cpython.object cimport PyObject

cdef extern from *:
    """
    typedef struct {
        int no_grad;            /* 1 inside no_grad() */
        int lazy;               /* 0: as LAZY_MODE says, 1: on, 2: off */
        int anomaly;            /* 1 inside anomaly_mode(), 2 where it stops at inf too */
        int torch;              /* 0: as compat() says, 1: PyTorch's meaning where it differs, 2: Needle's */
        PyObject *made;         /* a list that collects what is recorded, or NULL */
        PyObject *guarded;      /* the node whose gradient is being computed, or NULL */
        PyObject *used;         /* {id: value}, while capturing: the values that were there before and are used; or NULL */
        long long since;        /* the write clock when capturing began */
        long walks;             /* how often this thread has gone backward */
        int walking;            /* how many walks backward are under way */
        PyObject *op;           /* what is being computed, where somebody wants to know (see recording); or NULL */
        PyObject *trace;        /* a list that collects every result and what no op records, or NULL */
    } needle_modes;
    """
    ctypedef struct Modes "needle_modes":
        int no_grad
        int lazy
        int anomaly
        int torch
        PyObject* made
        PyObject* guarded
        PyObject* used
        long long since
        long walks
        int walking
        PyObject* op
        PyObject* trace

cdef bint lazy_by_default               # LAZY_MODE of needle.autograd
cdef bint torch_by_default              # what needle.compat() says

cdef Modes* modes_here() noexcept nogil


cdef inline bint is_lazy(Modes* here) noexcept:
    return here.lazy == 1 or here.lazy == 0 and lazy_by_default


cdef inline bint means_torch(Modes* here) noexcept:
    return here.torch == 1 or here.torch == 0 and torch_by_default
