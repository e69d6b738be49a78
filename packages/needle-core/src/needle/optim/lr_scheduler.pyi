from needle_nn.optim.lr_scheduler import *
from needle_nn.optim.lr_scheduler import __all__ as __all__
