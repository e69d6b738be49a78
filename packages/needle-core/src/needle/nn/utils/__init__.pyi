from needle_nn.nn.utils import *
