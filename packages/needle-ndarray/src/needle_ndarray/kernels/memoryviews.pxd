# Typed memoryviews on memory that a kernel was handed: x = matrix(pointer, rows, columns), then x[i, j].
#
# They belong to no object (Cython counts no references to None), so they are made, sliced and passed on without the GIL: three of
# them and two slices cost 8 ns together. Who makes one answers for the memory; a build with bounds checks holds every access to the
# sizes given here. Strides count elements.

from needle_ndarray.kernels.views cimport F, T, boolean, int64, uint8

cdef extern from "memoryviews.h" nogil:
    boolean[::1] booleans "NEEDLE_1D"(boolean* data, Py_ssize_t n)
    const int64[::1] positions "NEEDLE_1D"(const int64* data, Py_ssize_t n)
    float[::1] vector_of_floats "NEEDLE_1D"(float* data, Py_ssize_t n)
    double[::1] vector_of_doubles "NEEDLE_1D"(double* data, Py_ssize_t n)
    boolean[:, ::1] matrix_of_booleans "NEEDLE_2D"(boolean* data, Py_ssize_t m, Py_ssize_t n, Py_ssize_t row_stride)
    uint8[:, ::1] matrix_of_uint8 "NEEDLE_2D"(uint8* data, Py_ssize_t m, Py_ssize_t n, Py_ssize_t row_stride)
    int[:, ::1] matrix_of_ints "NEEDLE_2D"(int* data, Py_ssize_t m, Py_ssize_t n, Py_ssize_t row_stride)
    int64[:, ::1] matrix_of_int64 "NEEDLE_2D"(int64* data, Py_ssize_t m, Py_ssize_t n, Py_ssize_t row_stride)
    float[:, ::1] matrix_of_floats "NEEDLE_2D"(float* data, Py_ssize_t m, Py_ssize_t n, Py_ssize_t row_stride)
    double[:, ::1] matrix_of_doubles "NEEDLE_2D"(double* data, Py_ssize_t m, Py_ssize_t n, Py_ssize_t row_stride)
    float[:, :, ::1] matrices_of_floats "NEEDLE_3D"(float* data, Py_ssize_t k, Py_ssize_t m, Py_ssize_t n)
    double[:, :, ::1] matrices_of_doubles "NEEDLE_3D"(double* data, Py_ssize_t k, Py_ssize_t m, Py_ssize_t n)
    float[:, :, :, ::1] images_of_floats "NEEDLE_4D"(float* data, Py_ssize_t n, Py_ssize_t h, Py_ssize_t w, Py_ssize_t c)
    double[:, :, :, ::1] images_of_doubles "NEEDLE_4D"(double* data, Py_ssize_t n, Py_ssize_t h, Py_ssize_t w, Py_ssize_t c)


cdef inline F[::1] vector(F* data, Py_ssize_t n) noexcept nogil:
    if F is float:
        return vector_of_floats(data, n)
    else:
        return vector_of_doubles(data, n)


cdef inline F[:, ::1] matrix(F* data, Py_ssize_t rows, Py_ssize_t columns) noexcept nogil:
    if F is float:
        return matrix_of_floats(data, rows, columns, columns)
    else:
        return matrix_of_doubles(data, rows, columns, columns)


cdef inline T[:, ::1] strided_rows(T* data, Py_ssize_t rows, Py_ssize_t columns, Py_ssize_t row_stride) noexcept nogil:
    """A matrix whose rows begin `row_stride` elements after one another"""
    if T is boolean:
        return matrix_of_booleans(data, rows, columns, row_stride)
    elif T is uint8:
        return matrix_of_uint8(data, rows, columns, row_stride)
    elif T is int:
        return matrix_of_ints(data, rows, columns, row_stride)
    elif T is int64:
        return matrix_of_int64(data, rows, columns, row_stride)
    elif T is float:
        return matrix_of_floats(data, rows, columns, row_stride)
    else:
        return matrix_of_doubles(data, rows, columns, row_stride)


cdef inline F[:, :, ::1] matrices(F* data, Py_ssize_t count, Py_ssize_t rows, Py_ssize_t columns) noexcept nogil:
    if F is float:
        return matrices_of_floats(data, count, rows, columns)
    else:
        return matrices_of_doubles(data, count, rows, columns)


cdef inline F[:, :, :, ::1] images(F* data, Py_ssize_t n, Py_ssize_t h, Py_ssize_t w, Py_ssize_t c) noexcept nogil:
    if F is float:
        return images_of_floats(data, n, h, w, c)
    else:
        return images_of_doubles(data, n, h, w, c)
