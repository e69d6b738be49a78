"""Re-export of needle_nn.data: datasets and loaders."""

from needle._sister import sister

with sister("needle.data", "needle-nn"):
    from needle_nn.data import *


def __getattr__(name: str):
    from needle_nn import absent

    return absent.says("needle.data", absent.DATA)(name)
