/* Typed memoryviews on memory, as Cython lays them out: object, data, shape, strides in bytes, suboffsets. The object is None, which
 * Cython does not count. These are macros because Cython declares its struct after it includes this; p points to the element type. */
#ifndef NEEDLE_MEMORYVIEWS_H
#define NEEDLE_MEMORYVIEWS_H

#define NEEDLE_SLICE(p, ...) ((__Pyx_memviewslice) {(void *) Py_None, (char *) (p), __VA_ARGS__, {-1, -1, -1, -1}})
#define NEEDLE_BYTES(p, count) ((Py_ssize_t) sizeof *(p) * (count))
#define NEEDLE_1D(p, n) NEEDLE_SLICE(p, {n}, {sizeof *(p)})
#define NEEDLE_2D(p, m, n, row) NEEDLE_SLICE(p, {m, n}, {NEEDLE_BYTES(p, row), sizeof *(p)})
#define NEEDLE_3D(p, k, m, n) NEEDLE_SLICE(p, {k, m, n}, {NEEDLE_BYTES(p, (m) * (n)), NEEDLE_BYTES(p, n), sizeof *(p)})
#define NEEDLE_ROWS_OF(p, h, w, c) NEEDLE_BYTES(p, (h) * (w) * (c)), NEEDLE_BYTES(p, (w) * (c)), NEEDLE_BYTES(p, c)
#define NEEDLE_4D(p, n, h, w, c) NEEDLE_SLICE(p, {n, h, w, c}, {NEEDLE_ROWS_OF(p, h, w, c), sizeof *(p)})

#endif
