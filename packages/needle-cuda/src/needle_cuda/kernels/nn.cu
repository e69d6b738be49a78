// Softmax, its relatives, cross-entropy and their gradients, over rows of n elements; every array may be a view with any strides.
// Bound by bandwidth: a row is read from memory once, and again from the cache.
#include "rows.cuh"

// The largest of a row; NaN where one is. A thread reads its own elements only, here and below: out may lie where a does.
DEVICE T row_max(const T* a, i64 step, i64 n, T* scratch) {
    T largest = -infinity();
    FOR_COLUMNS(j, n) largest = larger(largest, a[j * step]);
    return row_threads_max(largest, scratch);
}

// The sum of e^(a - shift)
DEVICE Wide row_exp_sum(const T* a, i64 step, T shift, i64 n, Wide* scratch) {
    Adder each;
    FOR_COLUMNS(j, n) each.add(exp(a[j * step] - shift));
    return row_threads_sum(each.sum(), scratch);
}

// out = e^(a - max) / sum e^(a - max); out may be a
KERNEL softmax(const T* a, const View a_rows, i64 a_step, i64 rows, i64 n, T* out, const View out_rows, i64 out_step) {
    __shared__ T largest_scratch[WARP];
    __shared__ Wide sum_scratch[WARP];
    FOR_ROWS(row, rows) {
        const T* x = a + place(a_rows, row);
        T* y = out + place(out_rows, row);
        const T largest = row_max(x, a_step, n, largest_scratch);
        const T total = (T)row_exp_sum(x, a_step, largest, n, sum_scratch);
        FOR_COLUMNS(j, n) y[j * out_step] = exp(x[j * a_step] - largest) / total;
    }
}

// out = a - max - log sum e^(a - max); out may be a
KERNEL log_softmax(const T* a, const View a_rows, i64 a_step, i64 rows, i64 n, T* out, const View out_rows, i64 out_step) {
    __shared__ T largest_scratch[WARP];
    __shared__ Wide sum_scratch[WARP];
    FOR_ROWS(row, rows) {
        const T* x = a + place(a_rows, row);
        T* y = out + place(out_rows, row);
        const T largest = row_max(x, a_step, n, largest_scratch);
        const T shift = (T)log(row_exp_sum(x, a_step, largest, n, sum_scratch));
        FOR_COLUMNS(j, n) y[j * out_step] = (x[j * a_step] - largest) - shift;
    }
}

// out = max + log sum e^(a - max); a max of +-inf is left out of the shift
KERNEL logsumexp(const T* a, const View a_rows, i64 a_step, i64 rows, i64 n, T* out, const View out_lead) {
    __shared__ T largest_scratch[WARP];
    __shared__ Wide sum_scratch[WARP];
    FOR_ROWS(row, rows) {
        const T* x = a + place(a_rows, row);
        const T largest = row_max(x, a_step, n, largest_scratch);
        const T shift = largest - largest == 0 ? largest : (T)0;
        const Wide total = row_exp_sum(x, a_step, shift, n, sum_scratch);
        if (threadIdx.x == 0) out[place(out_lead, row)] = (T)(log(total) + shift);
    }
}

// out = y (grad - sum y grad)
KERNEL softmax_grad(const T* grad, const View grad_rows, i64 grad_step, const T* y, const View y_rows, i64 y_step, i64 rows, i64 n,
                    T* out, const View out_rows, i64 out_step) {
    __shared__ Wide scratch[WARP];
    FOR_ROWS(row, rows) {
        const T* g = grad + place(grad_rows, row);
        const T* p = y + place(y_rows, row);
        T* dx = out + place(out_rows, row);
        Adder each;
        FOR_COLUMNS(j, n) each.add(p[j * y_step] * g[j * grad_step]);
        const T total = (T)row_threads_sum(each.sum(), scratch);
        FOR_COLUMNS(j, n) dx[j * out_step] = p[j * y_step] * (g[j * grad_step] - total);
    }
}

// out = grad - e^y sum grad
KERNEL log_softmax_grad(const T* grad, const View grad_rows, i64 grad_step, const T* y, const View y_rows, i64 y_step, i64 rows,
                        i64 n, T* out, const View out_rows, i64 out_step) {
    __shared__ Wide scratch[WARP];
    FOR_ROWS(row, rows) {
        const T* g = grad + place(grad_rows, row);
        const T* logs = y + place(y_rows, row);
        T* dx = out + place(out_rows, row);
        Adder each;
        FOR_COLUMNS(j, n) each.add(g[j * grad_step]);
        const T total = (T)row_threads_sum(each.sum(), scratch);
        FOR_COLUMNS(j, n) dx[j * out_step] = g[j * grad_step] - exp(logs[j * y_step]) * total;
    }
}

// out = grad e^(x - y), 0 in a row of nothing but -inf
KERNEL logsumexp_grad(const T* grad, const View grad_lead, const T* x, const View x_rows, i64 x_step, const T* y, const View y_lead,
                      i64 rows, i64 n, T* out, const View out_rows, i64 out_step) {
    FOR_ROWS(row, rows) {
        const T* a = x + place(x_rows, row);
        T* dx = out + place(out_rows, row);
        const T value = y[place(y_lead, row)], upstream = grad[place(grad_lead, row)];
        const T shift = value == -infinity() ? (T)0 : value;
        FOR_COLUMNS(j, n) dx[j * out_step] = upstream * exp(a[j * x_step] - shift);
    }
}

// out = log sum e^(a - max) - (a[label] - max)
KERNEL cross_entropy(const T* a, const View a_rows, i64 a_step, const i64* labels, const View labels_lead, i64 rows, i64 n, T* out,
                     const View out_lead) {
    __shared__ T largest_scratch[WARP];
    __shared__ Wide sum_scratch[WARP];
    FOR_ROWS(row, rows) {
        const T* x = a + place(a_rows, row);
        const T largest = row_max(x, a_step, n, largest_scratch);
        const Wide total = row_exp_sum(x, a_step, largest, n, sum_scratch);
        if (threadIdx.x == 0) {
            const i64 label = labels[place(labels_lead, row)];
            out[place(out_lead, row)] = (T)(log(total) - ((Wide)x[label * a_step] - (Wide)largest));
        }
    }
}

// out = (softmax(a) - onehot(label)) grad
KERNEL cross_entropy_grad(const T* grad, const View grad_lead, const T* a, const View a_rows, i64 a_step, const i64* labels,
                          const View labels_lead, i64 rows, i64 n, T* out, const View out_rows, i64 out_step) {
    __shared__ T largest_scratch[WARP];
    __shared__ Wide sum_scratch[WARP];
    FOR_ROWS(row, rows) {
        const T* x = a + place(a_rows, row);
        T* y = out + place(out_rows, row);
        const T largest = row_max(x, a_step, n, largest_scratch), upstream = grad[place(grad_lead, row)];
        const T total = (T)row_exp_sum(x, a_step, largest, n, sum_scratch);
        const i64 label = labels[place(labels_lead, row)];
        FOR_COLUMNS(j, n) y[j * out_step] = (exp(x[j * a_step] - largest) / total - (T)(j == label)) * upstream;
    }
}
