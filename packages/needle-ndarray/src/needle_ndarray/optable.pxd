# The numbers of the ops, shared by the table in backend.pyx and by the CPU kernels. A new op goes at the end of its
# group here, gets a row in the table, a line in the NumPy backend and a loop in kernels/.

cdef enum DTypeCode:
    BOOL, UINT8, INT32, INT64, FLOAT32, FLOAT64, FLOAT16, BFLOAT16, DTYPE_COUNT


cdef inline Py_ssize_t itemsize(int dtype) noexcept nogil:
    """Bytes of an element"""
    return 1 if dtype <= UINT8 else 8 if dtype == INT64 or dtype == FLOAT64 else 2 if dtype >= FLOAT16 else 4


cdef enum UnaryCode:
    # one or two machine instructions an element
    NEGATIVE, ABS, SIGN, SQRT, RSQRT, RELU, FLOOR, CEIL, TRUNC, ROUND
    ISNAN, ISINF, ISFINITE, SIGNBIT, LOGICAL_NOT, INVERT
    # vector mathematics: dozens of instructions
    EXP, EXPM1, LOG, LOG1P, SIN, COS, TANH, SIGMOID, ERF, GELU, SILU
    LOG2, LOG10, TAN, ASIN, ACOS, ATAN, SINH, COSH, ASINH, ACOSH, ATANH

cdef enum BinaryCode:
    ADD, SUBTRACT, MULTIPLY, DIVIDE, FLOOR_DIVIDE, REMAINDER, POWER, MAXIMUM, MINIMUM
    EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL
    LOGICAL_AND, LOGICAL_OR, LOGICAL_XOR, BITWISE_AND, BITWISE_OR, BITWISE_XOR
    RELU_GRAD, TANH_GRAD, SIGMOID_GRAD, GELU_GRAD, SILU_GRAD
    ATAN2, HYPOT, LOGADDEXP, COPYSIGN, NEXTAFTER, LEFT_SHIFT, RIGHT_SHIFT

cdef enum ReduceCode:
    SUM, PROD, MAX, MIN, ANY, ALL

cdef enum ArgReduceCode:
    ARGMAX, ARGMIN

cdef enum ScanCode:
    CUMSUM

cdef enum RandomCode:
    UNIFORM, NORMAL

cdef enum ScatterCode:
    PUT, SCATTER_ADD

cdef enum RowsCode:
    SOFTMAX, LOG_SOFTMAX, LOGSUMEXP

cdef enum NormCode:
    LAYER_NORM, BATCH_NORM

cdef enum Conv2dCode:
    CONV2D, INPUT_GRAD, WEIGHT_GRAD

cdef enum Pool2dCode:
    MAX_POOL, MAX_POOL_GRAD, AVG_POOL, AVG_POOL_GRAD

cdef enum CellCode:
    RNN_TANH, RNN_RELU, LSTM, GRU, LSTM_GRAD, GRU_GRAD

cdef enum StepCode:
    SGD, NESTEROV, ADAM, ADAMW
