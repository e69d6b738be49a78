from needle_ndarray.backend cimport Op
from needle_ndarray.ndarray cimport NDArray


cpdef NDArray binary_op(Op op, object x, object y, NDArray out=*)
cpdef NDArray unary_op(Op op, object x, NDArray out=*)
cpdef NDArray reduce_op(Op op, NDArray a, object axis=*, bint keepdims=*)
cpdef NDArray arg_reduce_op(Op op, NDArray a, object axis=*, bint keepdims=*)
cdef object matmul_of(object x, object y)
