"""What needle_nn.nn has: nn.py beside this folder is the module; editors see it here, and its modules below."""

from needle_nn.nn import *
from needle_nn.nn import module as parameter
