"""Layers, optimizers and data loading for Needle; users reach them as needle.nn, needle.optim and needle.data."""

__version__ = "0.1.0"
