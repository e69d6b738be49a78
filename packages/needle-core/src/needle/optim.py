"""Re-export of needle_nn.optim: optimizers."""

from needle._sister import share, sister

with sister("needle.optim", "needle-nn"):
    from needle_nn.optim import *

share("optim", "lr_scheduler", "swa_utils", "optimizer", "adam", "sgd")


def __getattr__(name: str):
    from needle_nn import absent

    return absent.says("needle.optim", absent.OPTIM)(name)
