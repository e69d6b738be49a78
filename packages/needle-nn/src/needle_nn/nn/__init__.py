"""Layers and losses. A layer is its formula, `__init__` and `forward`; see `Module`."""

from needle_nn import absent
from needle_nn.nn import functional, init, parallel, utils  # noqa: F401 (nn.parallel says what there is instead)
from needle_nn.nn.activations import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softmin,
    Softplus,
    Softshrink,
    Softsign,
    Tanh,
    Tanhshrink,
    Threshold,
)  # fmt: skip
from needle_nn.nn.attention import AttentionLayer, MultiHeadAttention, Transformer, TransformerLayer
from needle_nn.nn.basic import (
    AlphaDropout,
    Bilinear,
    CosineSimilarity,
    Dropout,
    Dropout1d,
    Dropout2d,
    Embedding,
    EmbeddingBag,
    Identity,
    Linear,
    PairwiseDistance,
)  # fmt: skip
from needle_nn.nn.cells import GRUCell, LSTMCell, RNNCell
from needle_nn.nn.class_losses import CrossEntropyLoss, NLLLoss
from needle_nn.nn.containers import ModuleDict, ModuleList, ParameterDict, ParameterList, Residual, Sequential
from needle_nn.nn.conv import Conv, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d
from needle_nn.nn.losses import (
    BCELoss,
    BCEWithLogitsLoss,
    GaussianNLLLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    PoissonNLLLoss,
    SmoothL1Loss,
    SoftMarginLoss,
    SoftmaxLoss,
)  # fmt: skip
from needle_nn.nn.module import Module, Parameter
from needle_nn.nn.multihead import (
    MultiheadAttention,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)  # fmt: skip
from needle_nn.nn.norms import (
    BatchNorm1d,
    BatchNorm2d,
    GroupNorm,
    InstanceNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    LayerNorm,
    LayerNorm1d,
    RMSNorm,
    WeightNorm,
)  # fmt: skip
from needle_nn.nn.pair_losses import CosineEmbeddingLoss, HingeEmbeddingLoss, MarginRankingLoss, TripletMarginLoss
from needle_nn.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AvgPool1d,
    AvgPool2d,
    MaxPool1d,
    MaxPool2d,
    MaxUnpool1d,
    MaxUnpool2d,
)  # fmt: skip
from needle_nn.nn.quantized import QuantizedEmbedding, QuantizedLinear, quantize
from needle_nn.nn.recurrent import GRU, LSTM, RNN
from needle_nn.nn.shapes import (
    ConstantPad1d,
    ConstantPad2d,
    Flatten,
    PixelShuffle,
    PixelUnshuffle,
    ReflectionPad1d,
    ReflectionPad2d,
    ReplicationPad1d,
    ReplicationPad2d,
    Unflatten,
    Unfold,
    Upsample,
    UpsamplingBilinear2d,
    UpsamplingNearest2d,
    ZeroPad1d,
    ZeroPad2d,
)  # fmt: skip
from needle_nn.nn.summary import summary
from needle_nn.nn.volumes import (
    AdaptiveAvgPool3d,
    AvgPool3d,
    BatchNorm3d,
    Conv3d,
    ConvTranspose3d,
    Dropout3d,
    MaxPool3d,
)  # fmt: skip

__all__ = [
    "Module", "Parameter", "summary", "functional", "init", "utils",
    "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Residual",
    "Identity", "Linear", "Bilinear", "Embedding", "EmbeddingBag", "Dropout", "Dropout1d", "Dropout2d", "AlphaDropout",
    "CosineSimilarity",
    "PairwiseDistance",
    "Flatten", "Unflatten", "ZeroPad1d", "ZeroPad2d", "ConstantPad1d", "ConstantPad2d", "ReflectionPad1d", "ReflectionPad2d",
    "ReplicationPad1d", "ReplicationPad2d", "Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d", "PixelShuffle",
    "PixelUnshuffle", "Unfold",
    "ReLU", "ReLU6", "LeakyReLU", "PReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish", "Softplus", "Softsign", "Sigmoid",
    "LogSigmoid", "Hardsigmoid", "Hardswish", "Tanh", "Hardtanh", "Tanhshrink", "Softshrink", "Hardshrink", "Threshold",
    "Softmax", "Softmin", "LogSoftmax", "GLU",
    "BatchNorm1d", "BatchNorm2d", "LayerNorm", "LayerNorm1d", "RMSNorm", "GroupNorm", "InstanceNorm", "InstanceNorm1d",
    "InstanceNorm2d", "WeightNorm",
    "Conv", "Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d",
    "MaxPool1d", "MaxPool2d", "AvgPool1d", "AvgPool2d", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "MaxUnpool1d", "MaxUnpool2d",
    "Conv3d", "ConvTranspose3d", "MaxPool3d", "AvgPool3d", "AdaptiveAvgPool3d", "BatchNorm3d", "Dropout3d",
    "RNNCell", "RNN", "GRUCell", "GRU", "LSTMCell", "LSTM",
    "MultiHeadAttention", "AttentionLayer", "TransformerLayer", "Transformer",
    "MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder", "TransformerDecoderLayer", "TransformerDecoder",
    "SoftmaxLoss", "CrossEntropyLoss", "NLLLoss", "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss",
    "BCEWithLogitsLoss", "KLDivLoss", "SoftMarginLoss", "PoissonNLLLoss", "GaussianNLLLoss", "CosineEmbeddingLoss",
    "MarginRankingLoss", "HingeEmbeddingLoss", "TripletMarginLoss",
    "QuantizedLinear", "QuantizedEmbedding", "quantize",
]  # fmt: skip

__getattr__ = absent.says("needle.nn", absent.NN)
