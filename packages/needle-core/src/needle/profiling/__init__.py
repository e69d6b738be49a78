"""Profiling: where the time of a program goes, by operation, by verb of the backend and by line."""

from needle.profiling.profile import Profile, profile
from needle.profiling.tables import Row

__all__ = ["Profile", "Row", "profile"]
