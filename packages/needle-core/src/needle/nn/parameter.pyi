from needle_nn.nn.module import *
