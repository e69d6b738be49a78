"""Layers and losses as functions, with PyTorch's names, order of arguments and layouts: images are NCHW, kernels (out, in, KH, KW).

>>> import needle as ndl
>>> import needle.nn.functional as F
>>> F.max_pool2d(F.relu(ndl.Tensor([[[[-1.0, 2.0], [0.5, 1.0]]]])), 2).tolist()
[[[[2.0]]]]
"""

from needle_nn import absent
from needle_nn.nn.functional.activations import *
from needle_nn.nn.functional.images import *
from needle_nn.nn.functional.losses import *
from needle_nn.nn.functional.maps import *
from needle_nn.nn.functional.resizing import *
from needle_nn.nn.functional.volumes import *

__all__ = [
    "celu", "elu", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "leaky_relu", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "selu", "sigmoid", "silu", "softmax",
    "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "avg_pool1d", "avg_pool2d", "conv1d",
    "conv2d", "conv_transpose1d", "conv_transpose2d", "max_pool1d", "max_pool2d", "max_unpool1d", "max_unpool2d",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy", "gaussian_nll_loss",
    "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss", "nll_loss",
    "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss", "alpha_dropout", "batch_norm",
    "bilinear", "cosine_similarity", "dropout", "dropout1d", "dropout2d", "embedding", "embedding_bag", "group_norm",
    "instance_norm", "layer_norm", "linear", "normalize", "one_hot", "pairwise_distance", "rms_norm",
    "scaled_dot_product_attention",
    "adaptive_avg_pool3d",
    "avg_pool3d", "conv3d", "conv_transpose3d", "dropout3d", "max_pool3d",
    "interpolate", "pad", "pixel_shuffle", "pixel_unshuffle", "unfold", "upsample",
]  # fmt: skip

__getattr__ = absent.says("needle.nn.functional", absent.NN)
