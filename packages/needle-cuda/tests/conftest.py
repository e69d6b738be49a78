"""Without a GPU, kernels run in the emulation: NEEDLE_CUDA_EMULATION=0 takes the device itself, if there is one."""

import os

os.environ.setdefault("NEEDLE_CUDA_EMULATION", "1")
