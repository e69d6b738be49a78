from needle_nn.nn.utils.parametrizations import *
from needle_nn.nn.utils.parametrizations import __all__ as __all__
