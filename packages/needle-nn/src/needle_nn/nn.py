"""Layers and losses."""

__all__: list[str] = []
