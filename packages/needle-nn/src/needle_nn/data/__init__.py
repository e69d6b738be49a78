"""Datasets, transforms, samplers and loaders; users reach them as needle.data."""

from needle_nn import absent
from needle_nn.data.characters import CharCorpus, stdlib_docstrings
from needle_nn.data.cifar10 import CIFAR10Dataset
from needle_nn.data.dataset import (
    ConcatDataset,
    Dataset,
    IterableDataset,
    NDArrayDataset,
    Subset,
    TensorDataset,
    random_split,
)
from needle_nn.data.digits import DigitsDataset
from needle_nn.data.fetch import collate
from needle_nn.data.folders import ImageFolder
from needle_nn.data.loader import DataLoader
from needle_nn.data.mnist import MNISTDataset, parse_mnist
from needle_nn.data.samplers import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    WeightedSampler,
)
from needle_nn.data.sources import random_source
from needle_nn.data.tables import CSVDataset, HuggingFaceDataset, ParquetDataset
from needle_nn.data.text import Corpus, Dictionary, batchify, get_batch
from needle_nn.data.transforms import (
    Compose,
    Normalize,
    RandomCrop,
    RandomFlipHorizontal,
    RandomRotation,
    RandomScale,
    Transform,
)  # fmt: skip
from needle_nn.data.values import default_collate, default_convert

__all__ = [
    "Dataset", "NDArrayDataset", "TensorDataset", "IterableDataset", "Subset", "ConcatDataset", "random_split",
    "MNISTDataset", "CIFAR10Dataset", "DigitsDataset", "parse_mnist",
    "ImageFolder", "CSVDataset", "ParquetDataset", "HuggingFaceDataset",
    "DataLoader", "collate", "default_collate", "default_convert",
    "Sampler", "SequentialSampler", "RandomSampler", "SubsetRandomSampler",
    "WeightedSampler",
    "WeightedRandomSampler", "BatchSampler",
    "Transform", "Compose", "RandomFlipHorizontal", "RandomCrop", "RandomRotation", "RandomScale", "Normalize", "random_source",
    "Dictionary", "Corpus", "batchify", "get_batch", "CharCorpus", "stdlib_docstrings",
]  # fmt: skip

__getattr__ = absent.says("needle.data", absent.DATA)
