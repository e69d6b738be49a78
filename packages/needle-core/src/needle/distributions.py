"""Re-export of needle_nn.distributions: probability distributions."""

from needle._sister import share, sister

with sister("needle.distributions", "needle-nn"):
    from needle_nn.distributions import *

# PyTorch has a module for each
share("distributions", **dict.fromkeys("bernoulli categorical exponential kl normal uniform distribution".split(), ""))


def __getattr__(name: str):
    from needle_nn import absent

    return absent.says("needle.distributions", absent.DISTRIBUTIONS)(name)
