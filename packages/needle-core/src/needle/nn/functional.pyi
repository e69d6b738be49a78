from needle_nn.nn.functional import *
from needle_nn.nn.functional import __all__ as __all__
