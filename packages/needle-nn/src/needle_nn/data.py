"""Datasets and loaders."""

__all__: list[str] = []
