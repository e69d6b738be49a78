from needle_ndarray.kernels.views cimport View
from needle_ndarray.optable cimport GRU, GRU_GRAD, LSTM, LSTM_GRAD, RNN_RELU, RNN_TANH

cdef struct CellRows:           # a cell's operands in the order of its verb, inputs first, without the bias
    int cell
    int inputs
    int count
    Py_ssize_t n                # of the state
    View* bias                  # NULL: none
    View* at[8]                 # NULL: a result that is not wanted
    Py_ssize_t width[8]         # of their rows

cdef struct Sequence:           # compact arrays of one dtype
    int cell
    int dtype
    Py_ssize_t time_steps
    Py_ssize_t batch
    Py_ssize_t n
    Py_ssize_t gate_count       # of the preactivations: 1, 4 or 3
    char* x                     # (T, B, gate_count n); for the gradient of GRU that of x, as h weight has another, ds
    char* weight                # (n, gate_count n)
    char* bias                  # (gate_count n,), or NULL
    char* h                     # (T + 1, B, n)
    char* c                     # (T + 1, B, n), or (1, B, n) where nothing is kept
    char* gates                 # the activated gates (T, B, 4 n), or NULL
    char* dy                    # (T, B, n)
    char* ds                    # (T, B, gate_count n)
    char* dh                    # (B, n)
    char* dc                    # (B, n)

cdef int cell_rows(CellRows* job, int dtype, Py_ssize_t rows, int threads) noexcept nogil
cdef int run_sequence(const Sequence* q, bint backward, int threads) noexcept nogil
