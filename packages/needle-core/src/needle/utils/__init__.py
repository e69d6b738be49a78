"""PyTorch's place of what is in `needle.data` and elsewhere here: `from needle.utils.data import DataLoader`."""
