from needle_nn.nn.utils import *
from needle_nn.nn.utils import __all__ as __all__
