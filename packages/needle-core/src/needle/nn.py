"""Re-export of needle_nn.nn: layers and losses."""

from needle._sister import share, sister

with sister("needle.nn", "needle-nn"):
    from needle_nn.nn import *

share("nn", "functional", "init", "utils", "utils.parametrizations", "utils.rnn", "parallel")
# PyTorch's modules of what is in needle.nn and in needle_nn.nn.module here
share("nn", modules="", parameter="module", **{"modules.module": "module"})


def __getattr__(name: str):
    from needle_nn import absent

    return absent.says("needle.nn", absent.NN)(name)
