"""Whole networks, ready to train; GPT2, Llama, ResNet and VisionTransformer also have the names of published weights."""

from needle_nn.models.gpt import GPT
from needle_nn.models.gpt2 import GPT2
from needle_nn.models.language_model import LanguageModel
from needle_nn.models.lenet import LeNet
from needle_nn.models.llama import Llama
from needle_nn.models.mlp_resnet import MLPResNet, ResidualBlock
from needle_nn.models.pretrained import load_pretrained
from needle_nn.models.resnet import ResNet, resnet18, resnet50
from needle_nn.models.resnet9 import ConvBN, ResNet9
from needle_nn.models.vit import VisionTransformer, vit_b_16

__all__ = [
    "GPT", "LanguageModel", "LeNet", "MLPResNet", "ResidualBlock", "ConvBN", "ResNet9",
    "GPT2", "Llama", "ResNet", "resnet18", "resnet50", "VisionTransformer", "vit_b_16", "load_pretrained",
]  # fmt: skip
