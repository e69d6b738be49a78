"""Re-export of needle_nn.nn: layers and losses."""

from needle._sister import share, sister

with sister("needle.nn", "needle-nn"):
    from needle_nn.nn import *

share("nn", "functional", "init", "utils", "utils.parametrizations", "utils.parametrize", "utils.rnn", "parallel")
# PyTorch's modules of what is in needle.nn and in needle_nn.nn.module here
share("nn", modules="", parameter="module", **{"modules.module": "module"})
_PLACES = (
    "activation batchnorm container conv dropout linear loss normalization padding pixelshuffle pooling rnn sparse"
)
share("nn", **{f"modules.{place}": "" for place in (*_PLACES.split(), "transformer")})


def __getattr__(name: str):
    from needle_nn import absent

    return absent.says("needle.nn", absent.NN)(name)
