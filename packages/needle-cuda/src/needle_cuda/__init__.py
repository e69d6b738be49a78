"""CUDA backend of Needle's NDArray. It holds no kernels yet and registers no device."""

__version__ = "0.1.0"
