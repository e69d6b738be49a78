"""`needle.data`, where PyTorch has it: datasets and loaders."""

from needle.data import *
