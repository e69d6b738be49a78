"""Re-export of needle_nn.optim: optimizers."""

from needle._sister import sister

with sister("needle.optim", "needle-nn"):
    from needle_nn.optim import *
