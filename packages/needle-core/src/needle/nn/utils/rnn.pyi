from needle_nn.nn.utils.rnn import *
from needle_nn.nn.utils.rnn import __all__ as __all__
