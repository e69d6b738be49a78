"""Re-export of needle_nn.distributions: probability distributions."""

from needle._sister import sister

with sister("needle.distributions", "needle-nn"):
    from needle_nn.distributions import *
