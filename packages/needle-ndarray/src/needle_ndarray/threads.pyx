"""How many threads an operation may use, and the pool of them that kernels share their tasks with."""

import os

cdef extern from "thread_pool.h" nogil:
    enum:
        MAX_THREADS "NEEDLE_MAX_THREADS"
    void needle_share(Task task, const void* job, Py_ssize_t n, int threads) noexcept

cdef int num_threads = 1


def set_num_threads(n):
    """Use at most n threads per operation; results are the same bits for every n."""
    global num_threads
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_THREADS:
        raise ValueError(f"set_num_threads: {n!r}: expected an int from 1 to {MAX_THREADS}")
    num_threads = n


def get_num_threads():
    """Threads an operation may use: NEEDLE_NUM_THREADS, or the cores this process may run on."""
    return num_threads


cdef int threads_for(Py_ssize_t work, Py_ssize_t threshold) noexcept nogil:
    """1 below the threshold, else what the user allows"""
    return 1 if work < threshold else num_threads


cdef void share(Task task, const void* job, Py_ssize_t n, int threads) noexcept nogil:
    """task(job, i, thread) for every i < n, in any order and several at once; thread < threads is a number for scratch memory"""
    needle_share(task, job, n, threads)


def _threads_from_environment():
    text = os.environ.get("NEEDLE_NUM_THREADS")
    if text is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(cores, MAX_THREADS)
    if not text.isdigit() or not 1 <= int(text) <= MAX_THREADS:
        raise ImportError(f"NEEDLE_NUM_THREADS={text}: expected a number from 1 to {MAX_THREADS}")
    return int(text)


set_num_threads(_threads_from_environment())
