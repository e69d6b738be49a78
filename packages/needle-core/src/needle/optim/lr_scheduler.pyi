from needle_nn.optim.lr_scheduler import *
