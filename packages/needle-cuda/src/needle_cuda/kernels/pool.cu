// Pooling of x (n, h, w, c) to y (n, oh, ow, c), and the gradients; every array may be a view with any strides.
// All are bound by bandwidth: neighbouring threads take neighbouring channels. Gradients are gathered, a thread per element of x
// that adds up its windows in order, so that the result is the same on every run.

struct Pooling {
    i64 n, h, w, c, oh, ow, kh, kw, down, right, top, left;
    i64 x[4], y[4];                     // strides
};

// Element (n, row, column, c) of an array of images
struct Pixel {
    i64 n, row, column, c;

    __device__ Pixel(i64 i, i64 h, i64 w, i64 channels) {
        const i64 place = i / channels;
        c = i - place * channels;
        column = place % w;
        row = place / w % h;
        n = place / w / h;
    }
    __device__ i64 in(const i64* strides) const { return n * strides[0] + row * strides[1] + column * strides[2] + c * strides[3]; }
};

// The part [from, to) of a window that lies in the image
struct Range {
    i64 from, to;

    __device__ Range(i64 first, i64 size, i64 n) : from(first < 0 ? 0 : first), to(first + size < n ? first + size : n) {}
};

// The windows [from, to) that see a place of the image
struct Windows {
    i64 from, to;

    __device__ Windows(i64 place, i64 before, i64 size, i64 step, i64 count) {
        const i64 at = place + before;
        from = at < size ? 0 : (at - size) / step + 1;
        to = at / step + 1 < count ? at / step + 1 : count;
    }
};

// out = the largest of the window, NaN if one is; places beyond the image are -inf
KERNEL max_pool2d(const T* x, const Pooling at, T* out) {
    FOR_EACH(i, at.n * at.oh * at.ow * at.c) {
        const Pixel y(i, at.oh, at.ow, at.c);
        const T* image = x + y.n * at.x[0] + y.c * at.x[3];
        const Range rows(y.row * at.down - at.top, at.kh, at.h), columns(y.column * at.right - at.left, at.kw, at.w);
        T largest = -infinity();
        for (i64 row = rows.from; row < rows.to; row++)
            for (i64 column = columns.from; column < columns.to; column++)
                largest = larger(largest, image[row * at.x[1] + column * at.x[2]]);
        out[y.in(at.y)] = largest;
    }
}

// chosen (n, oh, ow, c) = place row * w + column of each window's first largest element, or of its first NaN; -1 for none
KERNEL max_pool2d_chosen(const T* x, const Pooling at, i64* chosen) {
    FOR_EACH(i, at.n * at.oh * at.ow * at.c) {
        const Pixel y(i, at.oh, at.ow, at.c);
        const T* image = x + y.n * at.x[0] + y.c * at.x[3];
        const Range rows(y.row * at.down - at.top, at.kh, at.h), columns(y.column * at.right - at.left, at.kw, at.w);
        i64 place = -1;
        T largest = 0;
        for (i64 row = rows.from; row < rows.to; row++)
            for (i64 column = columns.from; column < columns.to; column++) {
                const T value = image[row * at.x[1] + column * at.x[2]];
                if (place < 0 || value > largest || (is_nan(value) && !is_nan(largest))) {
                    largest = value;
                    place = row * at.w + column;
                }
            }
        chosen[i] = place;
    }
}

// out = the sum of grad over the windows that chose this element
KERNEL max_pool2d_grad(const T* grad, const i64* chosen, const Pooling at, T* out) {
    FOR_EACH(i, at.n * at.h * at.w * at.c) {
        const Pixel x(i, at.h, at.w, at.c);
        const Windows down(x.row, at.top, at.kh, at.down, at.oh), right(x.column, at.left, at.kw, at.right, at.ow);
        const i64 place = x.row * at.w + x.column;
        T sum = 0;
        for (i64 row = down.from; row < down.to; row++)
            for (i64 column = right.from; column < right.to; column++)
                if (chosen[((x.n * at.oh + row) * at.ow + column) * at.c + x.c] == place)
                    sum += grad[x.n * at.y[0] + row * at.y[1] + column * at.y[2] + x.c * at.y[3]];
        out[x.in(at.x)] = sum;
    }
}

// out = sum of the window / (kh kw); places beyond the image are 0, and count
KERNEL avg_pool2d(const T* x, const Pooling at, T* out) {
    FOR_EACH(i, at.n * at.oh * at.ow * at.c) {
        const Pixel y(i, at.oh, at.ow, at.c);
        const T* image = x + y.n * at.x[0] + y.c * at.x[3];
        const Range rows(y.row * at.down - at.top, at.kh, at.h), columns(y.column * at.right - at.left, at.kw, at.w);
        T sum = 0;
        for (i64 row = rows.from; row < rows.to; row++)
            for (i64 column = columns.from; column < columns.to; column++) sum += image[row * at.x[1] + column * at.x[2]];
        out[y.in(at.y)] = sum / (T)(at.kh * at.kw);
    }
}

// out = sum of grad over the windows that see this element / (kh kw)
KERNEL avg_pool2d_grad(const T* grad, const Pooling at, T* out) {
    FOR_EACH(i, at.n * at.h * at.w * at.c) {
        const Pixel x(i, at.h, at.w, at.c);
        const Windows down(x.row, at.top, at.kh, at.down, at.oh), right(x.column, at.left, at.kw, at.right, at.ow);
        T sum = 0;
        for (i64 row = down.from; row < down.to; row++)
            for (i64 column = right.from; column < right.to; column++)
                sum += grad[x.n * at.y[0] + row * at.y[1] + column * at.y[2] + x.c * at.y[3]];
        out[x.in(at.x)] = sum / (T)(at.kh * at.kw);
    }
}
