// Layer norm over rows, batch norm over columns of (rows, n). Distances are taken from the first element of a row or column: where
// the mean is far from 0, no digits are lost. A weight or bias may be null; steps of 0 and below are steps like others.
#include "rows.cuh"

// ---- Layer norm ----------------------------------------------------------------------------------------------------------

// (var + eps)^(-1/2) of a row whose mean is first + mean
DEVICE T row_scale(const T* x, i64 step, T first, T mean, i64 n, double eps, Wide* scratch) {
    Adder squares;
    FOR_COLUMNS(j, n) {
        const T d = (x[j * step] - first) - mean;
        squares.add(d * d);
    }
    return (T)(1 / sqrt(row_threads_sum(squares.sum(), scratch) / n + eps));
}

// mean - first of a row
DEVICE T row_mean(const T* x, i64 step, T first, i64 n, Wide* scratch) {
    Adder distance;
    FOR_COLUMNS(j, n) distance.add(x[j * step] - first);
    return (T)(row_threads_sum(distance.sum(), scratch) / n);
}

// out = (x - mean) / sqrt(var + eps) * weight + bias. Bound by bandwidth: a row comes from memory once, then from the cache.
KERNEL layer_norm(const T* x, const View x_rows, i64 x_step, i64 rows, i64 n, const T* weight, i64 weight_step, const T* bias,
                  i64 bias_step, double eps, T* out, const View out_rows, i64 out_step) {
    __shared__ Wide scratch[WARP];
    FOR_ROWS(row, rows) {
        const T* a = x + place(x_rows, row);
        T* y = out + place(out_rows, row);
        const T first = a[0], mean = row_mean(a, x_step, first, n, scratch);
        const T scale = row_scale(a, x_step, first, mean, n, eps, scratch);
        FOR_COLUMNS(j, n) {
            const T x_hat = ((a[j * x_step] - first) - mean) * scale;
            y[j * out_step] = x_hat * (weight ? weight[j * weight_step] : (T)1) + (bias ? bias[j * bias_step] : (T)0);
        }
    }
}

// dx = scale (g - mean g - x^ mean(g x^)) for g = grad weight, x^ = scale (x - mean); means (from the first element) and scales of
// the rows go to `statistics` (2, rows). Bound by bandwidth.
KERNEL layer_norm_grad(const T* grad, const View grad_rows, i64 grad_step, const T* x, const View x_rows, i64 x_step, i64 rows,
                       i64 n, const T* weight, i64 weight_step, double eps, T* statistics, T* dx, const View dx_rows, i64 dx_step) {
    __shared__ Wide scratch[WARP];
    FOR_ROWS(row, rows) {
        const T* a = x + place(x_rows, row);
        const T* g = grad + place(grad_rows, row);
        T* y = dx + place(dx_rows, row);
        const T first = a[0], mean = row_mean(a, x_step, first, n, scratch);
        const T scale = row_scale(a, x_step, first, mean, n, eps, scratch);
        Adder sum_g, sum_gx;
        FOR_COLUMNS(j, n) {
            const T each = g[j * grad_step] * (weight ? weight[j * weight_step] : (T)1);
            sum_g.add(each);
            sum_gx.add(each * (((a[j * x_step] - first) - mean) * scale));
        }
        const T mean_g = (T)(row_threads_sum(sum_g.sum(), scratch) / n), mean_gx = (T)(row_threads_sum(sum_gx.sum(), scratch) / n);
        FOR_COLUMNS(j, n) {
            const T each = g[j * grad_step] * (weight ? weight[j * weight_step] : (T)1);
            const T x_hat = ((a[j * x_step] - first) - mean) * scale;
            y[j * dx_step] = scale * ((each - mean_g) - x_hat * mean_gx);
        }
        if (threadIdx.x == 0) {
            statistics[row] = mean;
            statistics[rows + row] = scale;
        }
    }
}

// ---- Sums of columns -----------------------------------------------------------------------------------------------------
// Blocks are (columns, rows at a time), the grid (blocks of columns, parts of the rows): each block leaves two sums per column in
// parts (part, 2, n), and one thread per column adds up the parts in order. So the result is the same on every run.

const int COLUMN_THREADS = 256;

// parts[part, 0 and 1, column] = the sums of what each(row, column, a, b) puts into a and b, over the part's `span` rows
template <class Each>
DEVICE void column_parts(i64 rows, i64 n, i64 span, Wide* scratch, Wide* parts, Each each) {
    const i64 column = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 first = blockIdx.y * span, last = first + span < rows ? first + span : rows;
    Adder a, b;
    for (i64 row = first + threadIdx.y; column < n && row < last; row += blockDim.y) {
        T to_a, to_b;
        each(row, column, to_a, to_b);
        a.add(to_a);
        b.add(to_b);
    }
    const int at = threadIdx.y * blockDim.x + threadIdx.x;
    scratch[at] = a.sum();
    scratch[COLUMN_THREADS + at] = b.sum();
    __syncthreads();
    if (threadIdx.y == 0 && column < n) {
        Wide total_a = 0, total_b = 0;
        for (int i = threadIdx.x; i < COLUMN_THREADS; i += blockDim.x) {
            total_a += scratch[i];
            total_b += scratch[COLUMN_THREADS + i];
        }
        parts[(2 * blockIdx.y) * n + column] = total_a;
        parts[(2 * blockIdx.y + 1) * n + column] = total_b;
    }
}

DEVICE Wide parts_sum(const Wide* parts, i64 count, i64 n, int which, i64 column) {
    Wide total = 0;
    for (i64 part = 0; part < count; part++) total += parts[(2 * part + which) * n + column];
    return total;
}

// Sums of grad x^ and of grad. Bound by bandwidth.
KERNEL layer_norm_parts(const T* grad, const View grad_rows, i64 grad_step, const T* x, const View x_rows, i64 x_step, i64 rows,
                        i64 n, const T* statistics, i64 span, Wide* parts) {
    __shared__ Wide scratch[2 * COLUMN_THREADS];
    column_parts(rows, n, span, scratch, parts, [&](i64 row, i64 column, T& a, T& b) {
        const T* from = x + place(x_rows, row);
        b = grad[place(grad_rows, row) + column * grad_step];
        a = b * (((from[column * x_step] - from[0]) - statistics[row]) * statistics[rows + row]);
    });
}

// dweight = sum of grad x^, dbias = sum of grad. Few numbers: the launch is all it costs.
KERNEL layer_norm_totals(const Wide* parts, i64 count, i64 n, T* dweight, i64 dweight_step, T* dbias, i64 dbias_step) {
    FOR_EACH(column, n) {
        dweight[column * dweight_step] = (T)parts_sum(parts, count, n, 0, column);
        dbias[column * dbias_step] = (T)parts_sum(parts, count, n, 1, column);
    }
}

// ---- Batch norm ----------------------------------------------------------------------------------------------------------

// Mean and sum of squared distances from it, of some numbers; merging two adds delta^2 count other / (count + other).
struct Moments {
    Wide count = 0, mean = 0, squares = 0;

    __device__ void merge(Wide other, Wide other_mean, Wide other_squares) {
        if (other == 0) return;
        const Wide share = other / (count + other), delta = other_mean - mean;
        mean += delta * share;
        squares += other_squares + delta * delta * count * share;
        count += other;
    }
};

const int RUN = 8;      // rows a thread holds at once

// parts[part, 0 and 1, column] = mean of x - x[0], and sum of squares around it. Bound by bandwidth.
KERNEL batch_norm_parts(const T* x, const View x_rows, i64 x_step, i64 rows, i64 n, i64 span, Wide* parts) {
    __shared__ Wide counts[COLUMN_THREADS], means[COLUMN_THREADS], squares[COLUMN_THREADS];
    const i64 column = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 begin = blockIdx.y * span, last = begin + span < rows ? begin + span : rows;
    const T first = column < n ? x[place(x_rows, 0) + column * x_step] : (T)0;
    Moments all;
    for (i64 row = begin + threadIdx.y; column < n && row < last; row += RUN * blockDim.y) {
        T held[RUN], sum = 0, around = 0;
        int count = 0;
#pragma unroll
        for (int i = 0; i < RUN; i++) {
            const i64 at = row + i * blockDim.y;
            held[i] = at < last ? x[place(x_rows, at) + column * x_step] - first : (T)0;
            count += at < last;
            sum += held[i];
        }
        const T mean = sum / count;
#pragma unroll
        for (int i = 0; i < RUN; i++) around += i < count ? (held[i] - mean) * (held[i] - mean) : (T)0;
        all.merge(count, mean, around);
    }
    const int at = threadIdx.y * blockDim.x + threadIdx.x;
    counts[at] = all.count;
    means[at] = all.mean;
    squares[at] = all.squares;
    __syncthreads();
    if (threadIdx.y == 0 && column < n) {
        for (int i = at + blockDim.x; i < COLUMN_THREADS; i += blockDim.x) all.merge(counts[i], means[i], squares[i]);
        parts[(2 * blockIdx.y) * n + column] = all.mean;
        parts[(2 * blockIdx.y + 1) * n + column] = all.squares;
    }
}

// mean and var of each column, and (2, n) of what batch_norm needs: the mean from the first row on, weight / sqrt(var + eps).
KERNEL batch_norm_totals(const T* x, const View x_rows, i64 x_step, const Wide* parts, i64 count, i64 span, i64 rows, i64 n,
                         const T* weight, i64 weight_step, double eps, T* statistics, T* mean, i64 mean_step, T* var,
                         i64 var_step) {
    FOR_EACH(column, n) {
        Moments all;
        for (i64 part = 0; part < count; part++) {
            const i64 left = rows - part * span;
            all.merge(left < span ? left : span, parts[2 * part * n + column], parts[(2 * part + 1) * n + column]);
        }
        const Wide variance = all.squares / rows;
        statistics[column] = (T)all.mean;
        statistics[n + column] = (T)((weight ? weight[column * weight_step] : (T)1) / sqrt(variance + eps));
        mean[column * mean_step] = (T)(all.mean + x[place(x_rows, 0) + column * x_step]);
        var[column * var_step] = (T)variance;
    }
}

// out = ((x - x[0]) - mean) scale + bias. Bound by bandwidth.
KERNEL batch_norm(const T* x, const View x_rows, i64 x_step, i64 rows, i64 n, const T* statistics, const T* bias, i64 bias_step,
                  T* out, const View out_rows, i64 out_step) {
    const T* first = x + place(x_rows, 0);
    FOR_EACH(i, rows * n) {
        const i64 row = i / n, column = i - row * n;
        const T distance = (x[place(x_rows, row) + column * x_step] - first[column * x_step]) - statistics[column];
        out[place(out_rows, row) + column * out_step] =
            distance * statistics[n + column] + (bias ? bias[column * bias_step] : (T)0);
    }
}

// Sums of grad (x - mean) and of grad. Bound by bandwidth.
KERNEL batch_norm_grad_parts(const T* grad, const View grad_rows, i64 grad_step, const T* x, const View x_rows, i64 x_step,
                             i64 rows, i64 n, const T* mean, i64 mean_step, i64 span, Wide* parts) {
    __shared__ Wide scratch[2 * COLUMN_THREADS];
    column_parts(rows, n, span, scratch, parts, [&](i64 row, i64 column, T& a, T& b) {
        b = grad[place(grad_rows, row) + column * grad_step];
        a = b * (x[place(x_rows, row) + column * x_step] - mean[column * mean_step]);
    });
}

// dweight, dbias, and (3, n) of what batch_norm_grad needs: mean of grad, coefficient of x - mean, weight / sqrt(var + eps).
KERNEL batch_norm_grad_totals(const Wide* parts, i64 count, i64 rows, i64 n, const T* var, i64 var_step, const T* weight,
                              i64 weight_step, double eps, T* statistics, T* dweight, i64 dweight_step, T* dbias, i64 dbias_step) {
    FOR_EACH(column, n) {
        const Wide scale = 1 / sqrt((Wide)var[column * var_step] + eps);
        const Wide along = parts_sum(parts, count, n, 0, column) * scale, sum = parts_sum(parts, count, n, 1, column);
        statistics[column] = (T)(sum / rows);
        statistics[n + column] = (T)(along * scale / rows);
        statistics[2 * n + column] = (T)((weight ? weight[column * weight_step] : (T)1) * scale);
        dweight[column * dweight_step] = (T)along;
        dbias[column * dbias_step] = (T)sum;
    }
}

// dx = scale ((grad - mean grad) - (x - mean) coefficient). Bound by bandwidth.
KERNEL batch_norm_grad(const T* grad, const View grad_rows, i64 grad_step, const T* x, const View x_rows, i64 x_step, i64 rows,
                       i64 n, const T* mean, i64 mean_step, const T* statistics, T* dx, const View dx_rows, i64 dx_step) {
    FOR_EACH(i, rows * n) {
        const i64 row = i / n, column = i - row * n;
        const T g = grad[place(grad_rows, row) + column * grad_step] - statistics[column];
        const T distance = x[place(x_rows, row) + column * x_step] - mean[column * mean_step];
        dx[place(dx_rows, row) + column * dx_step] = statistics[2 * n + column] * (g - distance * statistics[n + column]);
    }
}
