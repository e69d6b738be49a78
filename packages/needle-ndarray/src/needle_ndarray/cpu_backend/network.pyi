"""Compiled; nothing in it is for Python."""
