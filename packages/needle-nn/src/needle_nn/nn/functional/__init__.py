"""Layers and losses as functions, with PyTorch's names, order of arguments and layouts: images are NCHW, kernels (out, in, KH, KW).

>>> import needle as ndl
>>> import needle.nn.functional as F
>>> F.max_pool2d(F.relu(ndl.Tensor([[[[-1.0, 2.0], [0.5, 1.0]]]])), 2).tolist()
[[[[2.0]]]]
"""

from needle_nn import absent
from needle_nn.nn.functional import activations, images, losses, maps, resizing
from needle_nn.nn.functional.activations import *
from needle_nn.nn.functional.images import *
from needle_nn.nn.functional.losses import *
from needle_nn.nn.functional.maps import *
from needle_nn.nn.functional.resizing import *

__all__ = [*activations.__all__, *images.__all__, *losses.__all__, *maps.__all__, *resizing.__all__]

__getattr__ = absent.says("needle.nn.functional", absent.NN)
