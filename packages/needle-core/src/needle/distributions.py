"""Re-export of needle_nn.distributions: probability distributions."""

from needle._sister import sister

with sister("needle.distributions", "needle-nn"):
    from needle_nn.distributions import *


def __getattr__(name: str):
    from needle_nn import absent

    return absent.says("needle.distributions", absent.DISTRIBUTIONS)(name)
