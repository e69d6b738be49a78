# Random numbers from Philox: a block of four words is a function of a seed and a counter, so any block can be made anywhere, by
# any thread. The normal distribution uses only + - * / sqrt on doubles, which every machine rounds alike: the
# bits are those of random.py's NumPy version, and of the GPU's.

from libc.math cimport sqrt

from needle_ndarray.kernels.memoryviews cimport vector
from needle_ndarray.kernels.views cimport FLOAT32, F
from needle_ndarray.optable cimport NORMAL, UNIFORM
from needle_ndarray.threads cimport share

from needle_ndarray.backend import RANDOM
from needle_ndarray.kernels import check_ops

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    /* x = m * 2^e with m in [sqrt(1/2), sqrt(2)): returns e */
    static inline double needle_split(double x, double *m) {
        uint64_t bits;
        int64_t e;
        memcpy(&bits, &x, 8);
        e = ((int64_t)(bits - 0x3fe6a09e667f3bcdULL)) >> 52;
        bits -= (uint64_t)e << 52;
        memcpy(m, &bits, 8);
        return (double)(int32_t)e;
    }
    """
    ctypedef unsigned int uint32_t
    ctypedef unsigned long long uint64_t
    double needle_split(double x, double* m) noexcept nogil

cdef extern from "philox.h":
    void philox "needle_philox"(uint64_t seed, uint64_t counter, int n, uint32_t* w0, uint32_t* w1, uint32_t* w2,
                                uint32_t* w3) noexcept nogil

cdef enum:
    GROUP = 4096            # blocks of four words that a thread takes at a time
    LINE = 128              # blocks made side by side: loops over them become vector code

check_ops(RANDOM, {UNIFORM, NORMAL}, "kernels/random.pyx")


# ---- Numbers in [0, 1) --------------------------------------------------------------------------

cdef inline float unit24(uint32_t word) noexcept nogil:
    """24 random bits as a float in [0, 1)"""
    return <float> <int> (word >> 8) * <float> (1.0 / 16777216.0)


cdef inline double unit(uint32_t high, uint32_t low) noexcept nogil:
    """53 random bits as a double in [0, 1)"""
    return (<double> <int> (high >> 5) * 67108864.0 + <double> <int> (low >> 6)) / 9007199254740992.0


# ---- The normal distribution --------------------------------------------------------------------------

cdef inline double log_unit(double x) noexcept nogil:
    """ln x for x in (0, 1]: x = m 2^e, ln m = 2 artanh((m - 1) / (m + 1)) by its series"""
    cdef double m = 0, e = needle_split(x, &m), s, z
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    return e * 0.6931471805599453 + 2.0 * s * (1.0 + z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (
        1.0 / 11 + z * (1.0 / 13 + z * (1.0 / 15 + z * (1.0 / 17 + z * (1.0 / 19))))))))))


cdef inline double sine_quarter(double x) noexcept nogil:
    """sin(pi/2 x) for x in [0, 1], by Taylor's series"""
    cdef double t = x * 1.5707963267948966, z
    z = t * t
    return t * (1.0 - z * (1.0 / 6) * (1.0 - z * (1.0 / 20) * (1.0 - z * (1.0 / 42) * (1.0 - z * (1.0 / 72) * (
        1.0 - z * (1.0 / 110) * (1.0 - z * (1.0 / 156) * (1.0 - z * (1.0 / 210) * (
            1.0 - z * (1.0 / 272) * (1.0 - z * (1.0 / 342))))))))))


cdef void box_muller(double[::1] u, double[::1] v) noexcept nogil:
    """Pairs of independent normal numbers, in place, from u in (0, 1] and v in [0, 1)"""
    cdef double radius, turn, sine, cosine, swapped
    cdef Py_ssize_t i
    cdef int quarter
    for i in range(u.shape[0]):
        radius = sqrt(-2.0 * log_unit(u[i]))
        turn = v[i] * 4.0
        quarter = <int> turn
        turn -= <double> quarter
        sine, cosine = radius * sine_quarter(turn), radius * sine_quarter(1.0 - turn)
        swapped = sine if quarter & 1 else cosine           # quarter turns swap sine and cosine and change signs
        sine = cosine if quarter & 1 else sine
        u[i] = -swapped if (quarter == 1) | (quarter == 2) else swapped
        v[i] = -sine if quarter >= 2 else sine


# ---- Lines of numbers --------------------------------------------------------------------------

cdef void line32(int op, uint64_t seed, uint64_t counter, float[::1] out) noexcept nogil:
    """4 LINE float32: 24 bits each if uniform, pairs from 32 bits each if normal"""
    cdef uint32_t w[4][LINE]
    cdef double pairs[2][LINE]
    cdef double[::1] u = vector(pairs[0], LINE), v = vector(pairs[1], LINE)
    cdef int i, j
    philox(seed, counter, LINE, w[0], w[1], w[2], w[3])
    if op != NORMAL:
        for i in range(LINE):           # all four at once: compilers make vectors of stores side by side
            out[4 * i] = unit24(w[0][i])
            out[4 * i + 1] = unit24(w[1][i])
            out[4 * i + 2] = unit24(w[2][i])
            out[4 * i + 3] = unit24(w[3][i])
        return
    for j in range(2):
        for i in range(LINE):
            u[i] = (<double> w[2 * j][i] + 1.0) * (1.0 / 4294967296.0)
            v[i] = <double> w[2 * j + 1][i] * (1.0 / 4294967296.0)
        box_muller(u, v)
        for i in range(LINE):
            out[4 * i + 2 * j], out[4 * i + 2 * j + 1] = <float> u[i], <float> v[i]


cdef void line64(int op, uint64_t seed, uint64_t counter, double[::1] out) noexcept nogil:
    """2 LINE float64: 53 bits each"""
    cdef uint32_t w[4][LINE]
    cdef double pairs[2][LINE]
    cdef double[::1] u = vector(pairs[0], LINE), v = vector(pairs[1], LINE)
    cdef int i
    philox(seed, counter, LINE, w[0], w[1], w[2], w[3])
    for i in range(LINE):
        u[i], v[i] = unit(w[0][i], w[1][i]), unit(w[2][i], w[3][i])
    if op == NORMAL:
        for i in range(LINE):
            u[i] = 1.0 - u[i]
        box_muller(u, v)
    for i in range(LINE):
        out[2 * i], out[2 * i + 1] = u[i], v[i]


cdef inline void line(int op, uint64_t seed, uint64_t counter, F[::1] out) noexcept nogil:
    if F is float:
        line32(op, seed, counter, out)
    else:
        line64(op, seed, counter, out)


cdef void group(int op, uint64_t seed, uint64_t counter, F[::1] out) noexcept nogil:
    """out = numbers from blocks counter, counter + 1, ..., a line at a time; the last line goes through a buffer"""
    cdef F last[4 * LINE]
    cdef Py_ssize_t n = out.shape[0], length = 16 * LINE // <Py_ssize_t> sizeof(F), start = 0, i
    while start + length <= n:
        line(op, seed, counter, out[start:start + length])
        start += length
        counter += LINE
    if start < n:
        line(op, seed, counter, vector(last, length))
        for i in range(n - start):
            out[start + i] = last[i]


cdef struct Job:
    int op, dtype
    uint64_t seed, counter
    char* out
    Py_ssize_t n
    Py_ssize_t elements             # of a task


cdef void one_group(const void* given, Py_ssize_t g, int thread) noexcept nogil:
    cdef const Job* job = <const Job*> given
    cdef Py_ssize_t start = g * job.elements, n = min(job.elements, job.n - start)
    cdef uint64_t counter = job.counter + <uint64_t> g * GROUP
    if job.dtype == FLOAT32:
        group(job.op, job.seed, counter, vector(<float*> job.out + start, n))
    else:
        group(job.op, job.seed, counter, vector(<double*> job.out + start, n))


cdef void fill_random(int op, int dtype, unsigned long long seed, unsigned long long counter, char* out, Py_ssize_t n,
                      int threads) noexcept nogil:
    """out[i] = numbers from blocks counter, counter + 1, ..."""
    cdef Job job
    job.op, job.dtype, job.seed, job.counter, job.out, job.n = op, dtype, seed, counter, out, n
    job.elements = GROUP * (4 if dtype == FLOAT32 else 2)
    share(one_group, &job, (n + job.elements - 1) // job.elements, threads)
