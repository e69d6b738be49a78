"""Re-export of needle_nn.nn: layers and losses."""

from needle._sister import sister

with sister("needle.nn", "needle-nn"):
    from needle_nn.nn import *
