from needle_nn.optim.swa_utils import *
from needle_nn.optim.swa_utils import __all__ as __all__
