"""Functions of one example, called for a whole batch at once: `vmap`."""

from needle.batching.vmap import vmap

__all__ = ["vmap"]
