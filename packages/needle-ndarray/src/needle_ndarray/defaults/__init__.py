"""The optional verbs in terms of the required ones: what a backend runs until it has kernels of its own.

A function here is the verb of the same name in `backend.Backend`, where the formula stands; `backend` is the one that it runs on.
"""

# ruff: noqa: F401
from needle_ndarray.defaults.convolution import conv2d, pool2d, pool2d_grad
from needle_ndarray.defaults.network import (
    attention,
    attention_grad,
    cross_entropy,
    cross_entropy_grad,
    norm,
    norm_grad,
    rows,
    rows_grad,
)
from needle_ndarray.defaults.optimizers import step
from needle_ndarray.defaults.products import linear, matmul_tiled, matmul_weight
from needle_ndarray.defaults.recurrent import cell, cell_grad, sequence, sequence_grad
