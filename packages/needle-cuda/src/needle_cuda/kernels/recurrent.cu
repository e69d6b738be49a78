// Cells of recurrent networks, all that is pointwise in one launch: a thread per element of the state. Gates lie side by side along
// the last axis, each of n elements. Every array may be a view with any strides, and results may lie where the lines below say.
// Bound by bandwidth.

struct Plane { // steps along the rows and columns of a matrix
    i64 row, column;
};

DEVICE T sigmoid(T a) { // by e^-|a|, which does not overflow
    const T small = exp(-(a < 0 ? -a : a));
    return (a < 0 ? small : (T)1) / (1 + small);
}

// Element `column` of gate `gate` of a row
#define GATE(array, gate) array[row * array##_at.row + ((gate) * n + column) * array##_at.column]
#define STATE(array) array[row * array##_at.row + column * array##_at.column]
#define SUM(gate) (GATE(x, gate) + (GATE(y, gate) + (bias ? bias[((gate) * n + column) * bias_step] : (T)0)))

// i, f, g, o = x + (y + bias) through s, s, tanh, s;  c_out = f c + i g;  h_out = o tanh(c_out); gates may be null, x or y, c_out c
KERNEL lstm_cell(const T* x, const Plane x_at, const T* y, const Plane y_at, const T* bias, i64 bias_step, const T* c,
                 const Plane c_at, i64 rows, i64 n, T* h_out, const Plane h_out_at, T* c_out, const Plane c_out_at, T* gates,
                 const Plane gates_at) {
    FOR_EACH(at, rows * n) {
        const i64 row = at / n, column = at - row * n;
        const T i = sigmoid(SUM(0)), f = sigmoid(SUM(1)), g = tanh(SUM(2)), o = sigmoid(SUM(3));
        const T state = f * STATE(c) + i * g;
        STATE(c_out) = state;
        STATE(h_out) = o * tanh(state);
        if (gates) {
            GATE(gates, 0) = i;
            GATE(gates, 1) = f;
            GATE(gates, 2) = g;
            GATE(gates, 3) = o;
        }
    }
}

// d = dy + dh, t = tanh(c_out), dt = dc + d o (1 - t^2);  ds = dt g i (1 - i), dt c f (1 - f), dt i (1 - g^2), d t o (1 - o);
// dc_out = dt f, which may lie where dc does
KERNEL lstm_cell_grad(const T* dy, const Plane dy_at, const T* dh, const Plane dh_at, const T* dc, const Plane dc_at,
                      const T* gates, const Plane gates_at, const T* c, const Plane c_at, const T* c_out, const Plane c_out_at,
                      i64 rows, i64 n, T* ds, const Plane ds_at, T* dc_out, const Plane dc_out_at) {
    FOR_EACH(at, rows * n) {
        const i64 row = at / n, column = at - row * n;
        const T i = GATE(gates, 0), f = GATE(gates, 1), g = GATE(gates, 2), o = GATE(gates, 3);
        const T d = STATE(dy) + STATE(dh), t = tanh(STATE(c_out)), dt = STATE(dc) + d * o * (1 - t * t);
        GATE(ds, 0) = dt * g * i * (1 - i);
        GATE(ds, 1) = dt * STATE(c) * f * (1 - f);
        GATE(ds, 2) = dt * i * (1 - g * g);
        GATE(ds, 3) = d * t * o * (1 - o);
        STATE(dc_out) = dt * f;
    }
}

// r, z = s(x + (y + bias)), m = y + bias, n = tanh(x + r m);  h_out = n + z (h - n); gates (r, z, n, m) may be null
KERNEL gru_cell(const T* x, const Plane x_at, const T* y, const Plane y_at, const T* bias, i64 bias_step, const T* h,
                const Plane h_at, i64 rows, i64 n, T* h_out, const Plane h_out_at, T* gates, const Plane gates_at) {
    FOR_EACH(at, rows * n) {
        const i64 row = at / n, column = at - row * n;
        const T r = sigmoid(SUM(0)), z = sigmoid(SUM(1));
        const T m = GATE(y, 2) + (bias ? bias[(2 * n + column) * bias_step] : (T)0), each = tanh(GATE(x, 2) + r * m);
        STATE(h_out) = each + z * (STATE(h) - each);
        if (gates) {
            GATE(gates, 0) = r;
            GATE(gates, 1) = z;
            GATE(gates, 2) = each;
            GATE(gates, 3) = m;
        }
    }
}

// d = dy + dh, dn = d (1 - z) (1 - n^2), dz = d (h - n) z (1 - z), dr = dn m r (1 - r);  dx = dr, dz, dn;  ds = dr, dz, dn r;
// dh_out = d z, which may lie where dh does
KERNEL gru_cell_grad(const T* dy, const Plane dy_at, const T* dh, const Plane dh_at, const T* h, const Plane h_at, const T* gates,
                     const Plane gates_at, i64 rows, i64 n, T* dx, const Plane dx_at, T* ds, const Plane ds_at, T* dh_out,
                     const Plane dh_out_at) {
    FOR_EACH(at, rows * n) {
        const i64 row = at / n, column = at - row * n;
        const T r = GATE(gates, 0), z = GATE(gates, 1), each = GATE(gates, 2), m = GATE(gates, 3);
        const T d = STATE(dy) + STATE(dh), dn = d * (1 - z) * (1 - each * each);
        const T dz = d * (STATE(h) - each) * z * (1 - z), dr = dn * m * r * (1 - r);
        GATE(dx, 0) = dr;
        GATE(dx, 1) = dz;
        GATE(dx, 2) = dn;
        GATE(ds, 0) = dr;
        GATE(ds, 1) = dz;
        GATE(ds, 2) = dn * r;
        STATE(dh_out) = d * z;
    }
}
