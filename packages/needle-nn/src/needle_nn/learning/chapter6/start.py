"""Chapter 6: convolution, recurrent networks, a transformer.

The text is in chapter6.md; `needle learn check 6` checks this file.

Convolution is written in NumPy with gradients by hand, everything else in Needle's tensors.
Replace each `raise NotImplementedError`.
"""

import numpy as np

import needle as ndl
import needle.nn as nn


def conv(x, weight, stride=1, padding=0):
    """NumPy: x (N, H, W, C), weight (K, K, C, F) -> (N, OH, OW, F), OH = (H + 2 padding - K) // stride + 1"""
    raise NotImplementedError


def conv_gradients(out_grad, x, weight, stride=1, padding=0):
    """NumPy: (gradient of x, gradient of weight), given out_grad (N, OH, OW, F), the gradient of the result of conv"""
    raise NotImplementedError


def lstm_cell(x, h, c, W_ih, W_hh, bias):
    """Tensors: x (B, I), h and c (B, H), W_ih (I, 4H), W_hh (H, 4H), bias (4H,) -> (h', c'); gates in the order i, f, g, o"""
    raise NotImplementedError


def lstm(X, h, c, W_ih, W_hh, bias):
    """Tensors: X (T, B, I) -> (the states h of all steps (T, B, H), the last h, the last c)"""
    raise NotImplementedError


def attention(q, k, v, causal=False):
    """Tensors: softmax(q k^T / sqrt(D)) v for q, k, v (B, H, T, D); causal: position t sees positions up to t"""
    raise NotImplementedError


class TransformerLayer(nn.Module):
    """The formula of the text: x (B, T, features) -> the same shape; causal. Compose nn.LayerNorm1d, nn.Linear and attention."""

    def __init__(self, features, num_head, dim_head, hidden_size):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):
        raise NotImplementedError
