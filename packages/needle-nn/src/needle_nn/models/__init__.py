"""Whole networks, ready to train."""

from needle_nn.models.gpt import GPT
from needle_nn.models.language_model import LanguageModel
from needle_nn.models.lenet import LeNet
from needle_nn.models.mlp_resnet import MLPResNet, ResidualBlock
from needle_nn.models.resnet9 import ConvBN, ResNet9

__all__ = ["GPT", "LanguageModel", "LeNet", "MLPResNet", "ResidualBlock", "ConvBN", "ResNet9"]
