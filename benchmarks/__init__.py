"""Needle's times beside those of NumPy, PyTorch and JAX; README.md says how to run them."""
