"""`needle.data`, where PyTorch has it: datasets and loaders."""

import sys

from needle.data import *

# PyTorch's modules of what is all in this one here
dataloader = dataset = sampler = sys.modules[__name__]
sys.modules |= {f"{__name__}.{part}": dataset for part in ("dataloader", "dataset", "sampler")}


def __getattr__(name: str):
    from needle_nn import absent

    return absent.says("needle.utils.data", absent.DATA)(name)
