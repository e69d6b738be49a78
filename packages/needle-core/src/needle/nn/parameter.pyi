from needle_nn.nn.module import Module as Module
from needle_nn.nn.module import Parameter as Parameter
