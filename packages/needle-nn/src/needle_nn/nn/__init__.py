"""Layers and losses. A layer is its formula, `__init__` and `forward`; see `Module`."""

from needle_nn.nn.activations import GELU, LeakyReLU, ReLU, Sigmoid, SiLU, Softmax, Tanh
from needle_nn.nn.attention import AttentionLayer, MultiHeadAttention, Transformer, TransformerLayer
from needle_nn.nn.basic import Dropout, Embedding, Flatten, Identity, Linear
from needle_nn.nn.containers import ModuleList, Residual, Sequential
from needle_nn.nn.conv import Conv, Conv1d, Conv2d, ConvTranspose2d
from needle_nn.nn.losses import BCEWithLogitsLoss, HuberLoss, L1Loss, MSELoss, SoftmaxLoss
from needle_nn.nn.module import Module, Parameter
from needle_nn.nn.norms import BatchNorm1d, BatchNorm2d, GroupNorm, InstanceNorm, LayerNorm1d, RMSNorm, WeightNorm
from needle_nn.nn.pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from needle_nn.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from needle_nn.nn.summary import summary

__all__ = [
    "Module", "Parameter", "summary",
    "Sequential", "ModuleList", "Residual",
    "Identity", "Linear", "Embedding", "Dropout", "Flatten",
    "ReLU", "LeakyReLU", "Sigmoid", "Tanh", "GELU", "SiLU", "Softmax",
    "BatchNorm1d", "BatchNorm2d", "LayerNorm1d", "RMSNorm", "GroupNorm", "InstanceNorm", "WeightNorm",
    "Conv", "Conv1d", "Conv2d", "ConvTranspose2d",
    "MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d",
    "RNNCell", "RNN", "GRUCell", "GRU", "LSTMCell", "LSTM",
    "MultiHeadAttention", "AttentionLayer", "TransformerLayer", "Transformer",
    "SoftmaxLoss", "MSELoss", "L1Loss", "HuberLoss", "BCEWithLogitsLoss",
]  # fmt: skip
