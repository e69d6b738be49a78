"""Sharing memory with others: NumPy arrays, and DLPack both ways.

DLPack passes a C struct in a capsule. Who takes it renames the capsule to "used_..." and calls the struct's
deleter, once, when the memory is no longer needed; a capsule that nobody took calls it itself. The structs
are those of dlpack.h, versions 0.8 and 1.x.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.pycapsule cimport (
    PyCapsule_CheckExact, PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyCapsule_SetName,
)
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from operator import index as as_index

import numpy as np

from needle_ndarray.buffer cimport Buffer
from needle_ndarray.kernels.views cimport View
from needle_ndarray.ndarray cimport MAX_NDIM, NDArray
from needle_ndarray.optable cimport DTYPE_COUNT

from needle_ndarray.capture import active_recorder
from needle_ndarray.dtypes import DTYPES, dtype as to_dtype_object
from needle_ndarray.ndarray import array_of_words, make_array

cdef extern from "Python.h":
    int Py_IsInitialized() nogil

cdef enum:
    CPU = 1                         # device types
    SIGNED = 0                      # type codes
    UNSIGNED = 1
    FLOAT = 2
    BRAIN = 4
    BOOLEAN = 6
    READ_ONLY = 1                   # flags
    IS_COPIED = 2

cdef struct DLDevice:
    int32_t device_type
    int32_t device_id

cdef struct DLDataType:
    uint8_t code
    uint8_t bits
    uint16_t lanes

cdef struct DLTensor:
    void* data
    DLDevice device
    int32_t ndim
    DLDataType dtype
    int64_t* shape
    int64_t* strides                # in elements; NULL: compact
    uint64_t byte_offset

cdef struct DLManagedTensor:        # "dltensor"
    DLTensor dl_tensor
    void* manager_ctx
    void (*deleter)(DLManagedTensor*) noexcept nogil

cdef struct DLPackVersion:
    uint32_t major
    uint32_t minor

cdef struct DLManagedTensorVersioned:   # "dltensor_versioned"
    DLPackVersion version
    void* manager_ctx
    void (*deleter)(DLManagedTensorVersioned*) noexcept nogil
    uint64_t flags
    DLTensor dl_tensor

cdef const char* OLD = b"dltensor"
cdef const char* OLD_USED = b"used_dltensor"
cdef const char* NEW = b"dltensor_versioned"
cdef const char* NEW_USED = b"used_dltensor_versioned"

cdef uint8_t[DTYPE_COUNT] TYPE_CODES = [BOOLEAN, UNSIGNED, SIGNED, SIGNED, FLOAT, FLOAT, FLOAT, BRAIN]
cdef dict KINDS = {BOOLEAN: "bool", SIGNED: "int", UNSIGNED: "uint", FLOAT: "float", BRAIN: "bfloat"}


# ---- Out --------------------------------------------------------------------------

def dlpack_device(NDArray a not None):
    """(device type, device id) of DLPack; (1, 0) is the host."""
    if isinstance(a._buffer, Buffer):
        return CPU, 0
    found = a.backend.dlpack_device()
    if found is not None:
        return found
    raise BufferError(f"__dlpack_device__: {a.device} has no device type of DLPack")


def to_dlpack(NDArray a not None, max_version=None, dl_device=None, copy=None, stream=None):
    """A capsule that keeps the array's memory alive: versioned where the consumer knows DLPack 1."""
    from needle_ndarray.devices import cpu
    cdef bint versioned = major_version(max_version) >= 1
    cdef bint on_host = isinstance(a._buffer, Buffer)
    cdef int i
    cdef bint to_host = dl_device is None or tuple(dl_device) == (CPU, 0)
    if not on_host:
        capsule = a.backend.to_dlpack(a, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
        if capsule is not None:
            return capsule
    if not to_host or (not on_host and (dl_device is None or copy is False)):
        raise BufferError(f"__dlpack__: cannot share {a.device} memory: dl_device={dl_device}, copy={copy}")
    if copy or not on_host:
        a = made_of(a._backend.to_host(a), a.dtype, cpu())
    for i in range(a._ndim):
        if a._strides[i] < 0 and a._shape[i] > 1 and a._size:     # PyTorch ends the process on them
            raise BufferError(f"__dlpack__: negative strides {a.strides} cannot be exported: use .compact()")
    return capsule_of(a, versioned, IS_COPIED if copy or not on_host else 0)


cdef object major_version(object given):
    """Of a pair (major, minor); 0 for None"""
    if given is None:
        return 0
    try:
        major, _minor = given
        return as_index(major)
    except (TypeError, ValueError):
        raise TypeError(f"__dlpack__: max_version {given!r}: expected (major, minor) or None") from None


cdef object capsule_of(NDArray a, bint versioned, uint64_t flags):
    cdef size_t head = sizeof(DLManagedTensorVersioned) if versioned else sizeof(DLManagedTensor)
    cdef char* block = <char*> malloc(head + 2 * a._ndim * sizeof(int64_t))
    cdef DLManagedTensor* old = <DLManagedTensor*> block
    cdef DLManagedTensorVersioned* new = <DLManagedTensorVersioned*> block
    if block is NULL:
        raise MemoryError("__dlpack__: no memory for the description of the array")
    a.mark_written()                    # the consumer may write, and will not tell
    if versioned:
        new.version.major, new.version.minor, new.flags = 1, 0, flags
        new.manager_ctx, new.deleter = <void*> a, delete_new
        describe(a, &new.dl_tensor, <int64_t*> (block + head))
    else:
        old.manager_ctx, old.deleter = <void*> a, delete_old
        describe(a, &old.dl_tensor, <int64_t*> (block + head))
    try:
        capsule = PyCapsule_New(block, NEW if versioned else OLD, release_unused)
    except BaseException:
        free(block)
        raise
    Py_INCREF(a)                        # the deleter's
    return capsule


cdef void describe(NDArray a, DLTensor* out, int64_t* layout) noexcept:
    cdef View view
    cdef int i
    a.view_into(&view)
    out.data, out.byte_offset, out.ndim = a._ptr, 0, a._ndim
    out.device.device_type, out.device.device_id = CPU, 0
    out.dtype.code, out.dtype.bits, out.dtype.lanes = TYPE_CODES[a._dtype], <uint8_t> (8 * view.itemsize), 1
    out.shape, out.strides = layout, layout + a._ndim
    for i in range(a._ndim):
        out.shape[i], out.strides[i] = a._shape[i], a._strides[i]


cdef void delete_old(DLManagedTensor* tensor) noexcept nogil:
    let_go(tensor.manager_ctx)
    free(tensor)


cdef void delete_new(DLManagedTensorVersioned* tensor) noexcept nogil:
    let_go(tensor.manager_ctx)
    free(tensor)


cdef void let_go(void* array) noexcept nogil:
    """Drop the reference: from any thread, with or without the GIL. At interpreter exit it is too late."""
    if Py_IsInitialized():
        with gil:
            Py_DECREF(<object> array)


cdef void release_unused(object capsule) noexcept:
    cdef DLManagedTensor* old
    cdef DLManagedTensorVersioned* new
    if PyCapsule_IsValid(capsule, OLD):
        old = <DLManagedTensor*> PyCapsule_GetPointer(capsule, OLD)
        old.deleter(old)
    elif PyCapsule_IsValid(capsule, NEW):
        new = <DLManagedTensorVersioned*> PyCapsule_GetPointer(capsule, NEW)
        new.deleter(new)


# ---- In --------------------------------------------------------------------------

@cython.no_gc_clear           # the memory must outlive whoever reads it
cdef class Span:
    """Bytes of somebody else as a flat buffer; keeps the owner, an object or a tensor of DLPack, alive."""

    cdef char* ptr
    cdef Py_ssize_t nbytes
    cdef bint readonly
    cdef object owner
    cdef DLManagedTensor* old
    cdef DLManagedTensorVersioned* new

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.ptr, self.nbytes, self.readonly, flags)

    def __dealloc__(self):
        if self.old is not NULL and self.old.deleter is not NULL:
            self.old.deleter(self.old)
        if self.new is not NULL and self.new.deleter is not NULL:
            self.new.deleter(self.new)


def from_dlpack(x, /, *, device=None, copy=None):
    """An array on the memory of x, any object with `__dlpack__`: nothing is copied on the host.

    Read-only or misaligned memory is copied, and so are bools with bytes other than 0 and 1.

    Parameters
    ----------
    device : where the result shall be; None: where x is.
    copy : True always copies; False raises BufferError where a copy is needed; None copies only then.
    """
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise TypeError(f"from_dlpack: {type(x).__name__} has no __dlpack__ and __dlpack_device__")
    kind, number = x.__dlpack_device__()
    if kind != CPU:
        return from_other_device(x, int(kind), number, device, copy)
    try:
        capsule = x.__dlpack__(max_version=(1, 0))
    except TypeError:                   # written before DLPack 1
        capsule = x.__dlpack__()
    view, kind = as_numpy(capsule)
    if copy:
        return made_of(view, kind, host_device(device))
    return share("from_dlpack", view, host_device(device), copy is None, kind)


def from_numpy(a, /, *, device=None):
    """An array on the memory of a numpy.ndarray: each sees what the other writes.

    Read-only, misaligned and byte-swapped memory is copied, and so are bools with bytes other than 0 and 1, and everything for a
    device not on the host.
    """
    if not isinstance(a, np.ndarray):
        raise TypeError(f"from_numpy: expected a numpy.ndarray, got {type(a).__name__}")
    return share("from_numpy", a, device, True)


cdef object from_other_device(object x, int kind, object number, object device, object copy):
    """x is not on the host: a backend that knows such memory takes it, else x is asked for a copy."""
    from needle_ndarray.devices import all_devices, backend_of
    for each in all_devices() if device is None else [device]:
        if getattr(each, "enabled", bool)():
            found = backend_of(each).dlpack_device()
            made = backend_of(each).from_dlpack(x, copy=copy) if found is not None and found[0] == kind else None
            if made is not None:
                if device is not None and made.backend is not backend_of(device) and copy is False:
                    raise BufferError(f"from_dlpack: the memory is on {made.device}, not on {device}, and copy=False")
                return made if device is None else made.to(device)
    if device is None or copy is False:
        raise BufferError(f"from_dlpack: no enabled device takes memory of DLPack device ({kind}, {number});"
                          " pass device=cpu() to copy")
    view, kind = as_numpy(x.__dlpack__(max_version=(1, 0), dl_device=(CPU, 0)))
    return made_of(view, kind, device)


cdef object made_of(object view, object dtype, object device):
    """A new array of a numpy.ndarray of the dtype's words"""
    return make_array(view, dtype, device) if dtype.numpy is dtype.storage else array_of_words(view, dtype, device)


cdef object host_device(object device):
    """The given device; for None the default one where it is on the host, else the cpu."""
    from needle_ndarray.devices import cpu
    return cpu() if device is None and not is_host(None) else device


cdef bint is_host(object device) except -1:
    return isinstance((<NDArray> NDArray.make((0,), device=device))._buffer, Buffer)


cdef object share(str what, object values, object device, bint may_copy, object dtype=None):
    """An NDArray on the memory of a numpy.ndarray, or a copy where that is impossible; dtype: what words are, if not numbers"""
    values = np.asarray(values)         # of a subclass the array itself: its attributes may say anything
    native = values.dtype.newbyteorder("=")
    try:
        dtype = to_dtype_object(native) if dtype is None else dtype
    except TypeError:
        raise TypeError(f"{what}: {values.dtype} is not one of {', '.join(DTYPES)}") from None
    size = native.itemsize
    reason = None
    if not is_host(device):
        reason = "on another device"
    elif values.size == 0:
        may_copy, reason = True, "empty"
    elif not values.flags.writeable:
        reason = "read-only"
    elif not values.flags.aligned or any(s % size for n, s in zip(values.shape, values.strides) if n > 1):
        reason = "misaligned"
    elif not values.dtype.isnative:
        reason = "byte-swapped"
    elif native == np.bool_ and values.view(np.uint8).max() > 1:
        reason = "bool with bytes other than 0 and 1"
    if reason is not None:
        if not may_copy:
            raise BufferError(f"{what}: the memory is {reason}, and copy=False")
        return made_of(values.astype(native, copy=False), dtype, device)
    if active_recorder() is not None:
        active_recorder().refuse("shares the memory of an array with NumPy or another library")
    low, high = np.lib.array_utils.byte_bounds(values)
    cdef Span span = Span()
    span.ptr, span.nbytes, span.owner = <char*> <size_t> low, high - low, values
    first = (values.__array_interface__["data"][0] - low) // size
    strides = tuple([s // size for s in values.strides])
    return NDArray.make(values.shape, strides, device, Buffer(span), first, dtype)


cdef object as_numpy(object capsule):
    """A numpy.ndarray on the tensor in a capsule, which is used up, and the dtype whose words are in it"""
    cdef Span span = Span()
    cdef DLTensor* tensor
    if not PyCapsule_CheckExact(capsule):
        raise TypeError(f"from_dlpack: __dlpack__ returned {type(capsule).__name__}, expected a capsule")
    if PyCapsule_IsValid(capsule, NEW):
        span.new = <DLManagedTensorVersioned*> PyCapsule_GetPointer(capsule, NEW)
        PyCapsule_SetName(capsule, NEW_USED)
        if span.new.version.major != 1:
            raise BufferError(f"from_dlpack: DLPack version {span.new.version.major}, expected 0 or 1")
        span.readonly = span.new.flags & READ_ONLY
        tensor = &span.new.dl_tensor
    elif PyCapsule_IsValid(capsule, OLD):
        span.old = <DLManagedTensor*> PyCapsule_GetPointer(capsule, OLD)
        PyCapsule_SetName(capsule, OLD_USED)
        tensor = &span.old.dl_tensor
    else:
        raise BufferError("from_dlpack: the capsule was used before, or is not one of DLPack")
    return strided(span, tensor)


cdef object strided(Span span, DLTensor* tensor):
    """Check every field of a foreign tensor, set the span to the bytes it reaches, and view them"""
    cdef int i
    if tensor.device.device_type != CPU:
        raise BufferError(f"from_dlpack: device type {tensor.device.device_type}, expected {CPU} (host)")
    if not 0 <= tensor.ndim <= MAX_NDIM:
        raise BufferError(f"from_dlpack: {tensor.ndim} axes, at most {MAX_NDIM} are supported")
    if tensor.ndim and tensor.shape is NULL:
        raise BufferError(f"from_dlpack: {tensor.ndim} axes without a shape")
    dtype = dtype_of(tensor.dtype)
    shape = tuple([tensor.shape[i] for i in range(tensor.ndim)])
    if any(n < 0 for n in shape):
        raise BufferError(f"from_dlpack: shape {shape}: sizes must be 0 or more")
    if 0 in shape:
        return np.empty(shape, dtype.storage), dtype
    if tensor.strides is NULL:
        strides = NDArray.compact_strides(shape)
    else:
        strides = tuple([tensor.strides[i] for i in range(tensor.ndim)])
    reach = [(n - 1) * s for n, s in zip(shape, strides)]       # Python ints: they do not overflow
    first = <object> <size_t> tensor.data + tensor.byte_offset
    low = first + dtype.itemsize * sum([r for r in reach if r < 0])
    high = first + dtype.itemsize * (sum([r for r in reach if r > 0]) + 1)
    if tensor.data is NULL or low <= 0 or high >= 1 << 63:
        raise BufferError(f"from_dlpack: shape {shape} with strides {strides} leaves the address space")
    span.ptr, span.nbytes = <char*> <size_t> low, high - low
    return np.ndarray(shape, dtype.storage, span, first - low, tuple([s * dtype.itemsize for s in strides])), dtype


cdef object dtype_of(DLDataType given):
    for each in DTYPES:
        if given.lanes == 1 and given.bits == 8 * each.itemsize and given.code == TYPE_CODES[<int> each.code]:
            return each
    name = KINDS.get(given.code, f"type code {given.code} of ") + str(given.bits)
    lanes = f" x {given.lanes} lanes" if given.lanes != 1 else ""
    raise TypeError(f"from_dlpack: {name}{lanes} is not one of {', '.join(DTYPES)}")
