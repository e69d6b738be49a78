"""PyTorch's place of layers that use several GPUs; here it says what there is instead.

>>> from needle import nn
>>> hasattr(nn.parallel, "DistributedDataParallel")
False
"""

from typing import Any


def __getattr__(name: str) -> Any:
    hint = "needle.distributed.replicate makes replicas of a model on the ranks of a job, with gradients summed"
    raise AttributeError(f"needle.nn.parallel has no {name!r}; {hint}", name=name)
