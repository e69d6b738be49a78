"""Host memory: buffers, and the caching allocator that hands them out.

Fresh memory costs a page fault per 4 KB, more than the arithmetic done on it. So a buffer whose last array dies goes to the
free list of its size class instead of back to the system, up to a ceiling. Its memoryview, expensive to make, stays with it.
"""

import os

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.ref cimport Py_DECREF, Py_INCREF

cdef extern from "system.h":
    void* needle_aligned(size_t alignment, size_t nbytes) nogil
    void needle_free_aligned(void* block) noexcept nogil
    void needle_trim() noexcept nogil
    void needle_huge_pages(void* ptr, size_t nbytes) nogil
    void lend "needle_lend"(void* ptr, Py_ssize_t nbytes, Py_ssize_t block_bytes) noexcept nogil
    void end_of_life "needle_end"(void* ptr, Py_ssize_t block_bytes) noexcept nogil
    int needle_cpu_level()
    int highest_bit "needle_highest_bit"(Py_ssize_t n) noexcept nogil
    Py_ssize_t needle_physical_memory()

DEF ALIGNMENT = 64              # a cache line, and the widest vector register
DEF HUGE = 1 << 21              # a huge page
DEF CLASSES = 240               # four per power of two: at most a quarter of a block is wasted

cdef Py_ssize_t PHYSICAL_MEMORY = needle_physical_memory()
cdef void* free_lists[CLASSES]
cdef Py_ssize_t cached_bytes = 0
cdef Py_ssize_t cached_blocks = 0
cdef Py_ssize_t cache_limit = 0
cdef Py_ssize_t live_bytes = 0      # of buffers in use
cdef Py_ssize_t peak_bytes = 0
cdef Py_ssize_t hits = 0
cdef Py_ssize_t misses = 0


cdef long long tick() noexcept:
    global write_clock
    write_clock += 1
    return write_clock


def next_version():
    """Advance the write clock: what `mark_written` of a buffer sets `version` to.

    One clock for all buffers: a value computed at time t is still good if every input's version is at most t.
    """
    return tick()


def cpu_levels():
    """The kernel levels this processor runs, plainest first."""
    return [f"v{i}" for i in range(2, needle_cpu_level() + 1)] or ["base"]


cdef class Memory:
    """A block from the system: frees itself, exports its bytes to a memoryview."""

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.ptr, self.nbytes, 0, flags)

    def __dealloc__(self):
        if self.ptr is not NULL:
            end_of_life(self.ptr, self.nbytes)
            needle_free_aligned(self.ptr)


@cython.no_gc
cdef class Buffer:
    """Buffer(data)
--

    Bytes on the host: what `NDArray._handle` is on cpu devices."""

    def __cinit__(self):
        self.size_class = -1

    def __init__(self, data):
        """Wrap the writable, C-contiguous bytes of somebody else's object."""
        cdef unsigned char[::1] given = memoryview(data).cast("B")
        if self.nbytes or self.size_class >= 0:         # only now: asking `data` for its bytes may have called this
            raise TypeError("Buffer.__init__: the buffer holds memory already")
        self.data = given
        self.nbytes = given.shape[0]

    def ptr(self):
        """The address of the first byte."""
        return <size_t> &self.data[0] if self.nbytes or self.size_class >= 0 else 0

    def mark_written(self):
        """Count a write: called by code that changes the memory without NDArray's knowledge."""
        self.version = tick()

    def __dealloc__(self):
        global live_bytes
        if self.size_class >= 0:
            live_bytes -= class_bytes(self.size_class)


cdef inline int size_class_of(Py_ssize_t nbytes) noexcept:
    """Class of blocks for nbytes: 64 * 2^(c // 4) * (4 + c % 4) / 4 bytes is the smallest that fits."""
    if nbytes <= ALIGNMENT:
        return 0
    cdef int power = highest_bit(nbytes - 1) - 6            # 64 * 2^power < nbytes <= 64 * 2^(power + 1)
    cdef Py_ssize_t quarter = <Py_ssize_t> 16 << power
    return 4 * power + <int> ((nbytes - (<Py_ssize_t> ALIGNMENT << power) + quarter - 1) // quarter)


cdef inline Py_ssize_t class_bytes(int size_class) noexcept:
    cdef Py_ssize_t base = <Py_ssize_t> ALIGNMENT << (size_class // 4)
    return base + (size_class % 4) * (base // 4)


cdef Buffer allocate(Py_ssize_t nbytes):
    """A buffer of at least nbytes: the cached one of that size class, or fresh memory."""
    global cached_bytes, cached_blocks, live_bytes, peak_bytes, hits
    if nbytes < 0:
        raise ValueError(f"cannot allocate {nbytes} bytes")
    if nbytes > PHYSICAL_MEMORY:
        raise out_of_memory(nbytes)
    cdef int size_class = size_class_of(nbytes)
    cdef Py_ssize_t block_bytes = class_bytes(size_class)
    cdef Buffer buffer
    cdef void* head = free_lists[size_class]
    if head is not NULL:
        buffer = <Buffer> head
        free_lists[size_class] = buffer.next_free
        Py_DECREF(buffer)               # the free list's reference
        cached_bytes -= block_bytes
        cached_blocks -= 1
        hits += 1
    else:
        buffer = fresh(size_class)
    buffer.nbytes, buffer.version = nbytes, 0
    lend(&buffer.data[0], nbytes, block_bytes)
    live_bytes += block_bytes
    if live_bytes > peak_bytes:
        peak_bytes = live_bytes
    return buffer


cdef Buffer fresh(int size_class):
    global misses
    cdef Py_ssize_t nbytes = class_bytes(size_class)
    cdef Memory memory = Memory.__new__(Memory)
    cdef Buffer buffer = Buffer.__new__(Buffer)
    cdef Py_ssize_t alignment = HUGE if nbytes >= 2 * HUGE else ALIGNMENT
    memory.ptr = <char*> needle_aligned(alignment, nbytes)
    if memory.ptr is NULL:
        empty_cache()
        memory.ptr = <char*> needle_aligned(alignment, nbytes)
        if memory.ptr is NULL:
            raise out_of_memory(nbytes)
    if nbytes >= 2 * HUGE:
        needle_huge_pages(memory.ptr, nbytes)
    memory.nbytes = nbytes
    buffer.data = memory
    buffer.size_class = size_class
    misses += 1
    return buffer


cdef out_of_memory(Py_ssize_t nbytes):
    return MemoryError(
        f"cannot allocate {nbytes:,} bytes ({format_bytes(nbytes)}): this machine has {format_bytes(PHYSICAL_MEMORY)},"
        f" {format_bytes(live_bytes)} are in use by arrays"
    )


def format_bytes(nbytes):
    """Write a number of bytes in the largest unit of which there is one.

    >>> format_bytes(100), format_bytes(3 << 19), format_bytes(1 << 29), format_bytes(1_610_612_736), format_bytes(1 << 50)
    ('100 bytes', '1.5 MiB', '512.0 MiB', '1.5 GiB', '1,024.0 TiB')
    """
    cdef double size = nbytes  # a C integer would be divided as one
    if size < 1024:
        return f"{nbytes} bytes"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1023.95 or unit == "TiB":
            return f"{size:,.1f} {unit}"


cdef void recycle(Buffer buffer) noexcept:
    """Take back a buffer that only its dying array still holds."""
    global cached_bytes, cached_blocks, live_bytes
    if buffer.size_class < 0:
        return
    cdef Py_ssize_t block_bytes = class_bytes(buffer.size_class)
    if cached_bytes + block_bytes > cache_limit:
        return
    lend(&buffer.data[0], 0, block_bytes)
    Py_INCREF(buffer)
    buffer.next_free = free_lists[buffer.size_class]
    free_lists[buffer.size_class] = <void*> buffer
    cached_bytes += block_bytes
    cached_blocks += 1
    live_bytes -= block_bytes


def empty_cache():
    """Give every cached block back to the system."""
    global cached_bytes, cached_blocks, live_bytes
    cdef Buffer buffer
    cdef int i
    for i in range(CLASSES):
        while free_lists[i] is not NULL:
            buffer = <Buffer> free_lists[i]
            free_lists[i] = buffer.next_free
            cached_bytes -= class_bytes(i)
            cached_blocks -= 1
            live_bytes += class_bytes(i)    # which __dealloc__ takes off again
            Py_DECREF(buffer)
            buffer = None
    needle_trim()


def set_cache_limit(nbytes):
    """Keep at most nbytes of unused memory (default: an eighth of the machine's, or NEEDLE_CACHE_LIMIT); 0 keeps none."""
    global cache_limit
    limit = int(nbytes)
    if limit < 0:
        raise ValueError(f"set_cache_limit: {nbytes}: expected 0 or more bytes")
    cache_limit = min(limit, PHYSICAL_MEMORY)
    if cached_bytes > cache_limit:
        empty_cache()


def memory_stats():
    """Counters of the allocator: bytes and blocks, calls served from the cache (hits) and from the system (misses)."""
    return {
        "live_bytes": live_bytes, "peak_bytes": peak_bytes, "cached_bytes": cached_bytes, "cached_blocks": cached_blocks,
        "cache_limit": cache_limit, "hits": hits, "misses": misses,
    }


def reset_peak():
    """Start measuring `peak_bytes` anew."""
    global peak_bytes
    peak_bytes = live_bytes


def _limit_from_environment():
    text = os.environ.get("NEEDLE_CACHE_LIMIT")
    if text is None:
        return PHYSICAL_MEMORY // 8
    if not text.isdigit():
        raise ImportError(f"NEEDLE_CACHE_LIMIT={text}: expected a number of bytes")
    return int(text)


set_cache_limit(_limit_from_environment())
