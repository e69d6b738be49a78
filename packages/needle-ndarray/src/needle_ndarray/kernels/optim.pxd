from needle_ndarray.kernels.views cimport View

cdef enum StepRule:
    SGD, ADAM


cdef struct Rule:               # the numbers of a step; SGD has momentum in beta1 and 1 - dampening in one_minus_beta1
    int op
    double lr
    double beta1
    double one_minus_beta1
    double beta2
    double one_minus_beta2
    double eps
    double weight_decay         # added to the gradient, times p
    double l1                   # added to the gradient, times the sign of p
    double decay                # taken from p, times p
    double correction1
    double correction2
    bint nesterov


cdef struct Item:               # a parameter: p, g and up to two states, all of one size and dtype
    char* at[4]                 # NULL where there is none
    View* views                 # four of them where one is not compact, else NULL
    Py_ssize_t size
    Py_ssize_t first            # number of its first block
    int dtype


cdef void run_steps(const Rule* r, Item* items, Py_ssize_t count, int threads) noexcept nogil
