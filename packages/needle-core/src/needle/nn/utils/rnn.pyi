from needle_nn.nn.utils.rnn import *
