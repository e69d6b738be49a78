"""Optimizers."""

__all__: list[str] = []
