"""Re-export of needle_nn.optim: optimizers."""

from needle._sister import share, sister

with sister("needle.optim", "needle-nn"):
    from needle_nn.optim import *

share("optim", "lr_scheduler")
