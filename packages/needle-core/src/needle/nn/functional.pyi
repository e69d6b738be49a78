from needle_nn.nn.functional import *
