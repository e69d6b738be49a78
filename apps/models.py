"""The networks of the course's homework 4; they live in needle_nn.models."""

from needle_nn.models import ConvBN, LanguageModel, ResNet9

__all__ = ["ConvBN", "LanguageModel", "ResNet9"]
