"""Chapter 6 by Needle itself: its operators and layers."""

import needle as ndl
from needle import ops
from needle.autograd import gradients
from needle_nn.nn import TransformerLayer as Layer


def tensor(x):
    return ndl.Tensor(x, dtype="float64")


def conv(x, weight, stride=1, padding=0):
    return ops.conv(tensor(x), tensor(weight), stride=stride, padding=padding).numpy()


def conv_gradients(out_grad, x, weight, stride=1, padding=0):
    inputs = [tensor(x), tensor(weight)]
    y = ops.conv(*inputs, stride=stride, padding=padding)
    return tuple(g.numpy() for g in gradients([y], inputs, [tensor(out_grad)]))


def lstm_cell(x, h, c, W_ih, W_hh, bias):
    return lstm(x.reshape((1, *x.shape)), h, c, W_ih, W_hh, bias)[1:]


def lstm(X, h, c, W_ih, W_hh, bias):
    return ops.lstm(X, W_ih, W_hh, bias, None, h, c)


def attention(q, k, v, causal=False):
    return ops.scaled_dot_product_attention(q, k, v, causal=causal)


def TransformerLayer(features, num_head, dim_head, hidden_size):
    return Layer(features, num_head, dim_head, hidden_size)
