"""The rule book, a line of text for each function or op: what shapes and dtypes its verb takes. `rules` reads and applies it.

A line has the verb and the function or op, inputs, then `->` and results. An array is `name: dtype (axes)`, in the order in
which symbols get their sizes. After a name `?` says that it may be None, `!` that it is changed in place. No dtype: that of the
arrays before it. The arrays of a step are the entries of lists.

    name/label     the parameter of the verb, and what users call it
    begin name     given to the function, which makes the first entry of a result of it, or its start
    to float       functions cast others first: int32 and int64 to float64, uint8, bool and halves to float32
    to int64       functions take any integers
    any            any dtype but float16 and bfloat16, which the arrays after it share; stored: these too
    summed         a dtype that sums have: int64, float32, float64
    other          a dtype by the op, or none that is compared
    mask           bool, or the dtype of the arrays before it
    ...            any number of axes, the same in all arrays of the line
    4H, T+1, n>0   four times H, one more than T, at least one; (1?, N): an axis of size 1 may come first
"""

TABLE = """
    copy                          a: stored (...) -> out: other (...)
    unary                         a: any (...) -> out: other (...)
    binary                        a: any (...); b: (...) -> out: other (...)
    where                         condition: bool (...); a: any (...); b: (...) -> out: (...)
    scan                          a: summed (...) -> out: (...)
    matmul                        a: any (..., M, K); b: (..., K, N) -> out: (..., M, N)
    linear                        x: any (..., M, K); weight: (K, N); bias: (1?, N) -> out: (..., M, N)
    matmul_weight                 a: float (M, K); weight: other (K, N); scale?: (N) -> out: (M, N)
    take                          a: stored (R, ...); index: int64 (I) -> out: (I, ...)
    scatter                       a: stored (I, ...); index: int64 (I) -> out: (R, ...)

    rows.softmax|log_softmax      a: float (..., n>0) -> out: (..., n)
    rows.logsumexp                a: float (..., n>0) -> out: (...)
    rows_grad.softmax_grad|log_softmax_grad  y: to float (..., n>0); grad: (..., n) -> out: (..., n)
    rows_grad.logsumexp_grad      x: to float (..., n>0); y: (...); grad: (...) -> out: (..., n)
    norm.layer_norm               x: to float (..., n>0); weight?, bias?: (n) -> out: (..., n)
    norm_grad.layer_norm_grad     x: to float (..., n>0); grad: (..., n); weight?: (n) -> dx: (..., n); dweight, dbias: (n)
    norm.batch_norm               x: to float (..., n>0); weight?, bias?: (n) -> out: (..., n); mean, var: (n)
    norm_grad.batch_norm_grad     x: to float (..., n>0); grad: (..., n); weight?: (n); mean, var: (n) -> dx: (..., n);
                                  dweight, dbias: (n)
    cross_entropy                 logits: to float (..., c>0); labels: to int64 (...) -> out: (...)
    cross_entropy_grad            logits: to float (..., c>0); labels: to int64 (...); grad: (...) -> out: (..., c)
    attention                     q: to float (..., t, d); k: to float (..., s, d); v: to float (..., s, e);
                                  mask?: mask (..., t, s) -> out: (..., t, e)
    attention_grad                q: to float (..., t, d); k: to float (..., s, d); v: to float (..., s, e);
                                  mask?: mask (..., t, s); grad: (..., t, e) -> dq: (..., t, d); dk: (..., s, d); dv: (..., s, e)

    sequence.lstm                 x: float (T, B, 4H); weight: (H, 4H); bias?: (4H); begin h0, begin c0: (B, H) ->
                                  h, c: (T+1, B, H); gates: (T, B, 4H)
    sequence.lstm_inference       x: float (T, B, 4H); weight: (H, 4H); bias?: (4H); begin h0, begin c0: (B, H) ->
                                  h: (T+1, B, H); c: (1, B, H)
    sequence_grad.lstm_grad       gates: float (T, B, 4H); dy/grad: (T, B, H); weight: (H, 4H); c: (T+1, B, H);
                                  begin dh?, begin dc?: (B, H) -> ds: (T, B, 4H); dh, dc: (B, H)
    sequence.gru                  x: float (T, B, 3H); weight: (H, 3H); bias?: (3H); begin h0: (B, H) -> h: (T+1, B, H);
                                  gates?: (T, B, 4H)
    sequence.gru_inference        x: float (T, B, 3H); weight: (H, 3H); bias?: (3H); begin h0: (B, H) -> h: (T+1, B, H)
    sequence_grad.gru_grad        gates: float (T, B, 4H); dy/grad: (T, B, H); weight: (H, 3H); h: (T+1, B, H);
                                  begin dh?: (B, H) -> dx, ds: (T, B, 3H); dh: (B, H)
    sequence.rnn                  x: float (T, B, H); weight: (H, H); bias?: (H); begin h0: (B, H) -> h: (T+1, B, H)
    sequence_grad.rnn_grad        dy/grad: float (T, B, H); weight: (H, H); h: (T+1, B, H); begin dh?: (B, H) -> ds: (T, B, H);
                                  dh: (B, H)
    cell.lstm_cell                x, y: float (B, 4H); state: (B, H); bias?: (4H) -> h_out, c_out: (B, H); gates?: (B, 4H)
    cell_grad.lstm_cell_grad      dy, dh, dc: float (B, H); gates: (B, 4H); state, c_out: (B, H) -> ds: (B, 4H); dstate: (B, H)
    cell.gru_cell                 x, y: float (B, 3H); state: (B, H); bias?: (3H) -> h_out: (B, H); gates?: (B, 4H)
    cell_grad.gru_cell_grad       dy, dh, state: float (B, H); gates: (B, 4H) -> dx, ds: (B, 3H); dstate: (B, H)

    conv2d.conv2d                 x: float (N, H, W, C); weight: (KH, KW, D, F) -> y: (N, OH, OW, F)
    conv2d.conv2d_input_grad      y/grad: float (N, OH, OW, F); weight: (KH, KW, D, F) -> x: (N, H, W, C)
    conv2d.conv2d_weight_grad     x: float (N, H, W, C); y/grad: (N, OH, OW, F) -> weight: (KH, KW, D, F)
    pool2d.max_pool2d|avg_pool2d  x: float (N, H, W, C) -> out: (N, OH, OW, C)
    pool2d_grad.max_pool2d_grad   grad: float (N, OH, OW, C); x: (N, H, W, C) -> out: (N, H, W, C)
    pool2d_grad.avg_pool2d_grad   grad: float (N, OH, OW, C) -> out: (N, H, W, C)

    step.sgd_step                 params!/parameter: float (...); grads/gradient: (...); m!?/state: (...)
    step.adam_step                params!/parameter: float (...); grads/gradient: (...); m!/state, v!/state: (...)
"""
