"""Re-export of needle_nn.func: modules as functions of their parameters."""

from needle._sister import sister

with sister("needle.func", "needle-nn"):
    from needle_nn.func import *
