"""The switches of a thread: whether it records, computes at once, looks for NaN."""

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #define NEEDLE_THREAD __declspec(thread)
    #else
    #define NEEDLE_THREAD __thread
    #endif
    #if defined(__GLIBC__)
    static NEEDLE_THREAD needle_modes needle_here __attribute__((tls_model("initial-exec")));
    #else
    static NEEDLE_THREAD needle_modes needle_here;
    #endif
    static inline needle_modes *needle_modes_here(void) { return &needle_here; }
    """
    Modes* of_this_thread "needle_modes_here"() noexcept nogil


cdef Modes* modes_here() noexcept nogil:
    return of_this_thread()


def set_mode(str name, int value):
    """Set a switch of this thread (no_grad, lazy, anomaly, torch; see needle.modes) and return what it was."""
    cdef Modes* here = modes_here()
    cdef int before
    if name == "no_grad":
        before, here.no_grad = here.no_grad, value
    elif name == "lazy":
        before, here.lazy = here.lazy, value
    elif name == "anomaly":
        before, here.anomaly = here.anomaly, value
    elif name == "torch":
        before, here.torch = here.torch, value
    else:
        raise ValueError(f"set_mode: {name}: expected no_grad, lazy, anomaly or torch")
    return before


def set_lazy_by_default(bint lazy):
    """What LAZY_MODE of needle.autograd says, for every thread."""
    global lazy_by_default
    lazy_by_default = lazy


def set_torch_by_default(bint torch):
    """What needle.compat() says, for every thread; returns what it said before."""
    global torch_by_default
    before = torch_by_default
    torch_by_default = torch
    return before


def follows_torch():
    """Whether PyTorch's meaning holds in this thread where Needle's is another one; see needle.compat."""
    return means_torch(modes_here())


def is_grad_enabled():
    """Whether this thread records what is computed."""
    return not modes_here().no_grad
