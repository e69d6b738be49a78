from needle_nn.nn.utils.parametrize import *
from needle_nn.nn.utils.parametrize import __all__ as __all__
