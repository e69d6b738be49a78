"""Optimizers, learning-rate schedules, gradient clipping, averages of parameters.

>>> import needle as ndl
>>> w = ndl.Tensor([[1.0, -2.0]])
>>> optimizer = ndl.optim.SGD([w], lr=0.25)
>>> for _ in range(2):
...     optimizer.reset_grad()
...     (w * w).sum().backward()
...     optimizer.step()
>>> w.tolist()
[[0.25, -0.5]]
"""

from needle_nn import absent
from needle_nn.optim import (
    lr_scheduler,
    swa_utils,
)
from needle_nn.optim.adam import Adam, AdamW
from needle_nn.optim.adaptive import Adadelta, Adagrad, RMSprop
from needle_nn.optim.averaging import EMA
from needle_nn.optim.clipping import clip_grad_norm, clip_grad_norm_, clip_grad_value, clip_grad_value_, grad_norm
from needle_nn.optim.lbfgs import LBFGS
from needle_nn.optim.moments import Adamax, Lion, NAdam, RAdam
from needle_nn.optim.newton import Newton
from needle_nn.optim.optimizer import Optimizer
from needle_nn.optim.schedules import (
    CosineLR,
    LambdaLR,
    LinearWarmup,
    OneCycleLR,
    ReduceOnPlateau,
    Schedule,
    StepLR,
    WarmupLR,
)  # fmt: skip
from needle_nn.optim.sgd import SGD
from needle_nn.optim.signs import ASGD, Rprop
from needle_nn.optim.stopping import EarlyStopping

__all__ = [
    "Optimizer",
    "SGD",
    "Adam",
    "AdamW",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "Adamax",
    "NAdam",
    "RAdam",
    "Lion",
    "Rprop",
    "ASGD",
    "LBFGS",
    "Newton",
    "lr_scheduler",
    "swa_utils",
    "Schedule",
    "StepLR",
    "LambdaLR",
    "CosineLR",
    "WarmupLR",
    "LinearWarmup",
    "OneCycleLR",
    "ReduceOnPlateau",
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value",
    "clip_grad_value_",
    "grad_norm",
    "EMA",
    "EarlyStopping",
]

__getattr__ = absent.says("needle.optim", absent.OPTIM)
