from needle_nn.nn.init import *
from needle_nn.nn.init import __all__ as __all__
