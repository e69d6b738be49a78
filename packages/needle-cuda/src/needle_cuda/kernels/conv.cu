// Convolution of x (n, h, w, c) with weight (kh, kw, c / groups, f) to y (n, oh, ow, f), and its gradients.
// Implicit matrix products: the matrix of windows is never written; its tiles are gathered from the image into shared memory
// (tile.cuh). Where a group has a few filters or channels only, as in depthwise convolution, tiles would stay empty: then a thread
// makes one element. The operand that is read through windows may have any strides, the others are compact.
#include "tile.cuh"

struct Convolution {
    i64 n, h, w, c, oh, ow, f, kh, kw;
    i64 down, right, top, left, dilation_down, dilation_right, groups;
    i64 gathered[4];                    // strides of x, or of grad in conv2d_input_grad

    __device__ i64 channels() const { return c / groups; }
    __device__ i64 filters() const { return f / groups; }
};

// The i-th place (a, b, c) of a space of sizes (any, nb, nc), and those after it
struct Walk {
    i64 a, b, c, nb, nc;

    __device__ Walk(i64 i, i64 nb, i64 nc) : nb(nb), nc(nc) {
        c = i % nc;
        b = i / nc % nb;
        a = i / nc / nb;
    }
    __device__ void advance(int step) {
        for (c += step; c >= nc; c -= nc)
            if (++b == nb) b = 0, a++;
    }
};

DEVICE bool in(i64 i, i64 n) {
    return (u64)i < (u64)n;
}

const i64 NOWHERE = -(1LL << 62);       // a place that no step leads into an image

const int R = 4;
#define CONV_KERNEL extern "C" __global__ void __launch_bounds__(TILE_THREADS)
#define ROOM                                      \
    __shared__ alignas(16) T left[Tile<R>::SIZE]; \
    __shared__ alignas(16) T right[Tile<R>::SIZE]

// Where a block's tile begins in a matrix with `columns` columns; blocks are (tiles, parts of k, groups).
struct Corner {
    i64 row, column, group;

    __device__ Corner(i64 columns) {
        const i64 side = Tile<R>::SIDE, across = (columns + side - 1) / side;
        row = blockIdx.x / across * side;
        column = blockIdx.x % across * side;
        group = blockIdx.z;
    }
};

// ---- y = windows of x times weight: (n oh ow, kh kw c) by (kh kw c, f) --------------------------------------------------------

// x as windows see it: the tile's side are their places, k is (u, v, channel)
struct Windows : Part<R> {
    const Convolution& at;
    const T* x;
    Walk tap;
    i64 image[R], y[R], x_[R];          // offset of the image, and where the window begins in it

    __device__ Windows(const Convolution& at, const T* from, const Corner& corner)
        : Part<R>(true), at(at), x(from + corner.group * at.channels() * at.gathered[3]), tap(k, at.kw, at.channels()) {
#pragma unroll
        for (int i = 0; i < R; i++) {
            const i64 place = corner.row + side + i * side_step;
            const Walk window(place, at.oh, at.ow);
            image[i] = window.a * at.gathered[0];
            y[i] = place < at.n * at.oh * at.ow ? window.b * at.down - at.top : NOWHERE;
            x_[i] = window.c * at.right - at.left;
        }
    }
    __device__ void fetch(i64 left, T (&held)[R]) {
        const i64 u = tap.a * at.dilation_down, v = tap.b * at.dilation_right;
#pragma unroll
        for (int i = 0; i < R; i++) {
            const i64 row = y[i] + u, column = x_[i] + v;
            const bool seen = k < left && in(row, at.h) && in(column, at.w);
            held[i] = seen ? x[image[i] + row * at.gathered[1] + column * at.gathered[2] + tap.c * at.gathered[3]] : (T)0;
        }
        tap.advance(DEPTH);
    }
};

// Bound by arithmetic, like a matrix product of these sizes.
CONV_KERNEL conv2d(const T* x, const T* weight, const Convolution at, T* out) {
    ROOM;
    const i64 filters = at.filters(), places = at.n * at.oh * at.ow;
    const Corner corner_(filters);
    Windows windows(at, x, corner_);
    Panel<R> columns(weight + corner_.group * filters + corner_.column, 1, at.f, filters - corner_.column);
    T sums[R][R];
    clear<R>(sums);
    multiply_panels<R>(windows, columns, at.kh * at.kw * at.channels(), left, right, sums);
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++) {
            const i64 row = corner_.row + corner<R>(threadIdx.x / 16, i), f = corner_.column + corner<R>(threadIdx.x % 16, j);
            if (row < places && f < filters) out[row * at.f + corner_.group * filters + f] = sums[i][j];
        }
}

// The same, a thread per element. Bound by bandwidth where windows are small.
KERNEL conv2d_direct(const T* x, const T* weight, const Convolution at, T* out) {
    const i64 channels = at.channels(), filters = at.filters();
    FOR_EACH(i, at.n * at.oh * at.ow * at.f) {
        const i64 f = i % at.f;
        const Walk window(i / at.f, at.oh, at.ow);
        const T* image = x + window.a * at.gathered[0] + f / filters * channels * at.gathered[3];
        T sum = 0;
        for (i64 u = 0; u < at.kh; u++) {
            const i64 row = window.b * at.down - at.top + u * at.dilation_down;
            for (i64 v = 0; v < at.kw && in(row, at.h); v++) {
                const i64 column = window.c * at.right - at.left + v * at.dilation_right;
                if (!in(column, at.w)) continue;
                const T* from = image + row * at.gathered[1] + column * at.gathered[2];
                for (i64 c = 0; c < channels; c++)
                    sum += from[c * at.gathered[3]] * weight[((u * at.kw + v) * channels + c) * at.f + f];
            }
        }
        out[i] = sum;
    }
}

// ---- dx = grad where its windows see x, times weight: (n h w, kh kw f) by (kh kw f, c) ------------------------------------------

// The window that sees image row y through its u-th tap, or none
DEVICE bool window_of(i64 y, i64 step, i64 count, i64& window) {
    window = step == 1 ? y : y / step;
    return y >= 0 && window * step == y && window < count;
}

// grad as the places of the image are seen: the tile's side are these places, k is (u, v, filter)
struct Seen : Part<R> {
    const Convolution& at;
    const T* grad;
    Walk tap;
    i64 image[R], y[R], x[R];

    __device__ Seen(const Convolution& at, const T* from, const Corner& corner)
        : Part<R>(true), at(at), grad(from + corner.group * at.filters() * at.gathered[3]), tap(k, at.kw, at.filters()) {
#pragma unroll
        for (int i = 0; i < R; i++) {
            const i64 place = corner.row + side + i * side_step;
            const Walk pixel(place, at.h, at.w);
            image[i] = pixel.a * at.gathered[0];
            y[i] = place < at.n * at.h * at.w ? pixel.b + at.top : NOWHERE;
            x[i] = pixel.c + at.left;
        }
    }
    __device__ void fetch(i64 left, T (&held)[R]) {
        const i64 u = tap.a * at.dilation_down, v = tap.b * at.dilation_right;
#pragma unroll
        for (int i = 0; i < R; i++) {
            i64 row, column;
            const bool seen = k < left && window_of(y[i] - u, at.down, at.oh, row) && window_of(x[i] - v, at.right, at.ow, column);
            held[i] = seen ? grad[image[i] + row * at.gathered[1] + column * at.gathered[2] + tap.c * at.gathered[3]] : (T)0;
        }
        tap.advance(DEPTH);
    }
};

// weight turned: the tile's side are channels, k is (u, v, filter)
struct Turned : Part<R> {
    const Convolution& at;
    const T* weight;
    Walk tap;
    i64 sides;

    __device__ Turned(const Convolution& at, const T* from, const Corner& corner)
        : Part<R>(true), at(at), weight(from + corner.group * at.filters() + (corner.column + side) * at.f),
          tap(k, at.kw, at.filters()), sides(at.channels() - corner.column) {}

    __device__ void fetch(i64 left, T (&held)[R]) {
        const T* from = weight + (tap.a * at.kw + tap.b) * at.channels() * at.f + tap.c;
#pragma unroll
        for (int i = 0; i < R; i++) held[i] = k < left && side + i * side_step < sides ? from[i * side_step * at.f] : (T)0;
        tap.advance(DEPTH);
    }
};

// Bound by arithmetic; with a stride, only one product in down * right meets a window, the others are with 0.
CONV_KERNEL conv2d_input_grad(const T* grad, const T* weight, const Convolution at, T* out) {
    ROOM;
    const i64 channels = at.channels(), places = at.n * at.h * at.w;
    const Corner corner_(channels);
    Seen seen(at, grad, corner_);
    Turned columns(at, weight, corner_);
    T sums[R][R];
    clear<R>(sums);
    multiply_panels<R>(seen, columns, at.kh * at.kw * at.filters(), left, right, sums);
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++) {
            const i64 row = corner_.row + corner<R>(threadIdx.x / 16, i), c = corner_.column + corner<R>(threadIdx.x % 16, j);
            if (row < places && c < channels) out[row * at.c + corner_.group * channels + c] = sums[i][j];
        }
}

// The same, a thread per element.
KERNEL conv2d_input_grad_direct(const T* grad, const T* weight, const Convolution at, T* out) {
    const i64 channels = at.channels(), filters = at.filters();
    FOR_EACH(i, at.n * at.h * at.w * at.c) {
        const i64 c = i % at.c, group = c / channels;
        const Walk pixel(i / at.c, at.h, at.w);
        const T* image = grad + pixel.a * at.gathered[0] + group * filters * at.gathered[3];
        T sum = 0;
        for (i64 u = 0; u < at.kh; u++)
            for (i64 v = 0; v < at.kw; v++) {
                i64 row, column;
                if (!window_of(pixel.b + at.top - u * at.dilation_down, at.down, at.oh, row)) continue;
                if (!window_of(pixel.c + at.left - v * at.dilation_right, at.right, at.ow, column)) continue;
                const T* from = image + row * at.gathered[1] + column * at.gathered[2];
                const T* by = weight + ((u * at.kw + v) * channels + c - group * channels) * at.f + group * filters;
                for (i64 f = 0; f < filters; f++) sum += from[f * at.gathered[3]] * by[f];
            }
        out[i] = sum;
    }
}

// ---- dweight = windows of x, turned, times grad: (kh kw c, n oh ow) by (n oh ow, f) -------------------------------------------

// x as the taps of a weight see it: the tile's side are (u, v, channel), k are places of windows
struct Taps : Part<R> {
    const Convolution& at;
    const T* x;
    Walk window;
    i64 u, v;                           // where the tap lies in a window; NOWHERE beyond the last one

    __device__ Taps(const Convolution& at, const T* from, const Corner& corner, i64 first)
        : Part<R>(false), at(at), window(first + k, at.oh, at.ow) {
        const i64 row = corner.row + side;
        const Walk tap(row, at.kw, at.channels());
        u = row < at.kh * at.kw * at.channels() ? tap.a * at.dilation_down - at.top : NOWHERE;
        v = tap.b * at.dilation_right - at.left;
        x = from + (corner.group * at.channels() + tap.c) * at.gathered[3];
    }
    __device__ void fetch(i64 left, T (&held)[R]) {
#pragma unroll
        for (int i = 0; i < R; i++) {
            const i64 row = window.b * at.down + u, column = window.c * at.right + v;
            const bool seen = k + i * k_step < left && in(row, at.h) && in(column, at.w);
            held[i] = seen ? x[window.a * at.gathered[0] + row * at.gathered[1] + column * at.gathered[2]] : (T)0;
            window.advance(k_step);
        }
    }
};

// out (parts, kh, kw, c / groups, f): each block takes `span` of the places. Bound by arithmetic.
CONV_KERNEL conv2d_weight_grad(const T* x, const T* grad, const Convolution at, i64 span, T* out) {
    ROOM;
    const i64 filters = at.filters(), rows = at.kh * at.kw * at.channels(), places = at.n * at.oh * at.ow;
    const i64 first = blockIdx.y * span, count = places - first < span ? places - first : span;
    const Corner corner_(filters);
    Taps taps(at, x, corner_, first);
    Panel<R> columns(grad + corner_.group * filters + corner_.column, 1, at.f, filters - corner_.column, first);
    T sums[R][R];
    clear<R>(sums);
    multiply_panels<R>(taps, columns, count, left, right, sums);
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++) {
            const i64 row = corner_.row + corner<R>(threadIdx.x / 16, i), f = corner_.column + corner<R>(threadIdx.x % 16, j);
            if (row < rows && f < filters) out[(blockIdx.y * rows + row) * at.f + corner_.group * filters + f] = sums[i][j];
        }
}

const int SLICES = 8;

// The same for groups of few filters: blocks of (32 filters, SLICES), the grid (filters, parts, taps). Bound by bandwidth.
KERNEL conv2d_weight_grad_direct(const T* x, const T* grad, const Convolution at, i64 span, T* out) {
    __shared__ T scratch[SLICES][WARP];
    const i64 channels = at.channels(), places = at.n * at.oh * at.ow, rows = at.kh * at.kw * channels;
    const i64 f = (i64)blockIdx.x * WARP + threadIdx.x;
    const i64 first = blockIdx.y * span, last = first + span < places ? first + span : places;
    for (i64 row = blockIdx.z; row < rows; row += gridDim.z) {
        const Walk tap(row, at.kw, channels);
        const T* from = x + (f / at.filters() * channels + tap.c) * at.gathered[3];
        Walk window(first + threadIdx.y, at.oh, at.ow);
        T sum = 0;
        for (i64 place = first + threadIdx.y; f < at.f && place < last; place += SLICES) {
            const i64 y = window.b * at.down - at.top + tap.a * at.dilation_down;
            const i64 x_ = window.c * at.right - at.left + tap.b * at.dilation_right;
            if (in(y, at.h) && in(x_, at.w))
                sum += from[window.a * at.gathered[0] + y * at.gathered[1] + x_ * at.gathered[2]] * grad[place * at.f + f];
            window.advance(SLICES);
        }
        __syncthreads();                // the last row's sums were read
        scratch[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && f < at.f) {
            for (int slice = 1; slice < SLICES; slice++) sum += scratch[slice][threadIdx.x];
            out[(blockIdx.y * rows + row) * at.f + f] = sum;
        }
    }
}
