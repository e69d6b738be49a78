# The defaults of the recurrent verbs: the cells out of elementwise verbs, the sequences out of matmul and the cells. Included by
# backend.pyx, which says what they compute.

cdef list side_by_side(object a, Py_ssize_t count):
    """(..., count n) -> the parts (..., n), views"""
    *_, wide = a.shape
    n = wide // count
    return [a[..., k * n : (k + 1) * n] for k in range(count)]


cdef int put_side_by_side(Backend self, list parts, object out) except -1:
    for part, place in zip(parts, side_by_side(out, len(parts))):
        self.copy(part, place)
    return 0


cdef int default_lstm_cell(Backend self, x, y, bias, c, h_out, c_out, gates) except -1:
    i, f, g, o = side_by_side(x + affine(y, None, bias), 4)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    self.copy(f * c + i * g, c_out)
    self.copy(o * c_out.tanh(), h_out)
    if gates is not None:
        put_side_by_side(self, [i, f, g, o], gates)
    return 0


cdef int default_lstm_cell_grad(Backend self, dy, dh, dc, gates, c, c_out, ds, dc_out) except -1:
    i, f, g, o = side_by_side(gates, 4)
    d, t = dy + dh, c_out.tanh()
    e = dc + d * o * (1 - t * t)
    put_side_by_side(self, [e * g * i * (1 - i), e * c * f * (1 - f), e * i * (1 - g * g), d * t * o * (1 - o)], ds)
    self.copy(e * f, dc_out)
    return 0


cdef int default_gru_cell(Backend self, x, y, bias, h, h_out, gates) except -1:
    x_r, x_z, x_n = side_by_side(x, 3)
    y_r, y_z, m = side_by_side(affine(y, None, bias), 3)
    r, z = (x_r + y_r).sigmoid(), (x_z + y_z).sigmoid()
    n = (x_n + r * m).tanh()
    self.copy(n + z * (h - n), h_out)
    if gates is not None:
        put_side_by_side(self, [r, z, n, m], gates)
    return 0


cdef int default_gru_cell_grad(Backend self, dy, dh, h, gates, dx, ds, dh_out) except -1:
    r, z, n, m = side_by_side(gates, 4)
    d = dy + dh
    dn = d * (1 - z) * (1 - n * n)
    dz, dr = d * (h - n) * z * (1 - z), dn * m * r * (1 - r)
    put_side_by_side(self, [dr, dz, dn], dx)
    put_side_by_side(self, [dr, dz, dn * r], ds)
    self.copy(d * z, dh_out)
    return 0


cdef object times(object a, bint backward):
    """0, 1, ... along the first of three axes, or from the last to the first"""
    count, _, _ = a.shape
    return range(count - 1, -1, -1) if backward else range(count)


cdef int default_lstm(Backend self, x, weight, bias, h, c, gates) except -1:
    for t in times(x, False):
        if gates is None:
            (only,) = c
            self.lstm_cell(x[t], h[t] @ weight, bias, only, h[t + 1], only, None)
        else:
            self.lstm_cell(x[t], h[t] @ weight, bias, c[t], h[t + 1], c[t + 1], gates[t])
    return 0


cdef int default_lstm_grad(Backend self, dy, weight, c, gates, ds, dh, dc) except -1:
    for t in times(dy, True):
        self.lstm_cell_grad(dy[t], dh, dc, gates[t], c[t], c[t + 1], ds[t], dc)
        self.copy(ds[t] @ weight.T, dh)
    return 0


cdef int default_gru(Backend self, x, weight, bias, h, gates) except -1:
    for t in times(x, False):
        self.gru_cell(x[t], h[t] @ weight, bias, h[t], h[t + 1], None if gates is None else gates[t])
    return 0


cdef int default_gru_grad(Backend self, dy, weight, h, gates, dx, ds, dh) except -1:
    for t in times(dy, True):
        self.gru_cell_grad(dy[t], dh, h[t], gates[t], dx[t], ds[t], dh)
        self.copy(dh + ds[t] @ weight.T, dh)
    return 0


cdef int default_rnn(Backend self, Op op, x, weight, bias, h) except -1:
    for t in times(x, False):
        self.unary(op, x[t] + affine(h[t] @ weight, None, bias), h[t + 1])
    return 0


cdef int default_rnn_grad(Backend self, Op op, dy, weight, h, ds, dh) except -1:
    for t in times(dy, True):
        d, y = dy[t] + dh, h[t + 1]
        self.copy(d * (1 - y * y) if op.name == "tanh" else d.where(y > 0, 0.0), ds[t])
        self.copy(ds[t] @ weight.T, dh)
    return 0
