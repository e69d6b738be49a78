"""The command `needle`."""
