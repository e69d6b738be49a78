"""What needle_nn.optim has: optim.py beside this folder is the module; editors see it here."""

from needle_nn.optim import *
