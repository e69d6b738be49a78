# Philox-4x32-10 (Salmon et al. 2011): a block of four 32-bit words is a function of a 64-bit seed and a 128-bit counter, so any block
# can be made anywhere, by any thread. The normal distribution uses only + - * / sqrt on doubles, which every machine rounds alike:
# the bits are those of random.py's NumPy version, and of the GPU's.

from cython.parallel cimport prange
from libc.math cimport sqrt

from needle_ndarray.kernels.views cimport FLOAT32
from needle_ndarray.optable cimport NORMAL

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    /* x = m * 2^e with m in [sqrt(1/2), sqrt(2)) */
    static inline double needle_split(double x, double *m) {
        uint64_t bits; int64_t e;
        memcpy(&bits, &x, 8);
        e = (int64_t)((bits - 0x3fe6a09e667f3bcdULL) >> 52) & 0xfff;
        e = e >= 0x800 ? e - 0x1000 : e;
        bits -= (uint64_t)e << 52;
        memcpy(m, &bits, 8);
        return (double)e;
    }
    """
    ctypedef unsigned int uint32_t
    ctypedef unsigned long long uint64_t
    double needle_split(double x, double* m) noexcept nogil

cdef enum:
    GROUP = 4096            # blocks of four words that a thread takes at a time


cdef inline void philox(uint64_t seed, uint64_t counter, uint32_t* out) noexcept nogil:
    """out = the four words of one block"""
    cdef uint32_t c0 = <uint32_t> counter, c1 = <uint32_t> (counter >> 32), c2 = 0, c3 = 0
    cdef uint32_t k0 = <uint32_t> seed, k1 = <uint32_t> (seed >> 32)
    cdef uint64_t p0, p1
    cdef int r
    for r in range(10):
        p0 = <uint64_t> 0xD2511F53u * c0
        p1 = <uint64_t> 0xCD9E8D57u * c2
        c0 = <uint32_t> (p1 >> 32) ^ c1 ^ k0
        c1 = <uint32_t> p1
        c2 = <uint32_t> (p0 >> 32) ^ c3 ^ k1
        c3 = <uint32_t> p0
        k0 += 0x9E3779B9u
        k1 += 0xBB67AE85u
    out[0], out[1], out[2], out[3] = c0, c1, c2, c3


cdef inline double unit(uint32_t high, uint32_t low) noexcept nogil:
    """53 random bits as a double in [0, 1)"""
    return (<double> (high >> 5) * 67108864.0 + <double> (low >> 6)) / 9007199254740992.0


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
    return t * (1.0 - z / 6 * (1.0 - z / 20 * (1.0 - z / 42 * (1.0 - z / 72 * (1.0 - z / 110 * (1.0 - z / 156 * (
        1.0 - z / 210 * (1.0 - z / 272 * (1.0 - z / 342)))))))))


cdef inline void normal_pair(double u, double v, double* first, double* second) noexcept nogil:
    """Box and Muller: two independent normal numbers from u in (0, 1] and v in [0, 1)"""
    cdef double radius = sqrt(-2.0 * log_unit(u)), turn = v * 4.0, sine, cosine
    cdef int quarter = <int> turn
    turn -= quarter
    sine, cosine = sine_quarter(turn), sine_quarter(1.0 - turn)
    if quarter == 0:
        first[0], second[0] = radius * cosine, radius * sine
    elif quarter == 1:
        first[0], second[0] = -(radius * sine), radius * cosine
    elif quarter == 2:
        first[0], second[0] = -(radius * cosine), -(radius * sine)
    else:
        first[0], second[0] = radius * sine, -(radius * cosine)


cdef void block32(int op, const uint32_t* w, float* out, int n) noexcept nogil:
    """Up to four float32 from one block: 24 bits each, or two pairs from 32 bits each"""
    cdef double z[4]
    cdef int i
    if op != NORMAL:
        for i in range(n):
            out[i] = <float> (w[i] >> 8) / <float> 16777216.0
        return
    for i in range(0, 4, 2):
        normal_pair((<double> w[i] + 1.0) / 4294967296.0, <double> w[i + 1] / 4294967296.0, &z[i], &z[i + 1])
    for i in range(n):
        out[i] = <float> z[i]


cdef void block64(int op, const uint32_t* w, double* out, int n) noexcept nogil:
    """Up to two float64 from one block: 53 bits each"""
    cdef double z[2]
    cdef int i
    z[0], z[1] = unit(w[0], w[1]), unit(w[2], w[3])
    if op == NORMAL:
        normal_pair(1.0 - z[0], z[1], &z[0], &z[1])
    for i in range(n):
        out[i] = z[i]


cdef void group(int op, int dtype, uint64_t seed, uint64_t counter, char* out, Py_ssize_t n) noexcept nogil:
    cdef uint32_t w[4]
    cdef Py_ssize_t i = 0
    if dtype == FLOAT32:
        while i < n:
            philox(seed, counter, w)
            block32(op, w, <float*> out + i, <int> min(<Py_ssize_t> 4, n - i))
            i += 4
            counter += 1
    else:
        while i < n:
            philox(seed, counter, w)
            block64(op, w, <double*> out + i, <int> min(<Py_ssize_t> 2, n - i))
            i += 2
            counter += 1


cdef void fill_random(int op, int dtype, unsigned long long seed, unsigned long long counter, char* out, Py_ssize_t n,
                      int threads) noexcept nogil:
    """out[i] = numbers from blocks counter, counter + 1, ..."""
    cdef Py_ssize_t per = 4 if dtype == FLOAT32 else 2, item = 4 if dtype == FLOAT32 else 8, g
    cdef Py_ssize_t elements = GROUP * per
    for g in prange((n + elements - 1) // elements, num_threads=threads, schedule="static", use_threads_if=threads > 1):
        group(op, dtype, seed, counter + <uint64_t> g * GROUP, out + g * elements * item, min(elements, n - g * elements))
