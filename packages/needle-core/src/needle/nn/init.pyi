from needle_nn.nn.init import *
