"""Re-export of needle_nn.distributed: several processes that compute together."""

from needle._sister import sister

with sister("needle.distributed", "needle-nn"):
    from needle_nn.distributed import *
