from needle_nn.nn.utils.parametrizations import *
