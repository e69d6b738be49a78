"""Re-export of needle_ndarray: `from needle import backend_ndarray as nd`."""

from needle_ndarray import *

# Last: the star also brings needle_ndarray's own module of this name.
import needle.backend_ndarray.ndarray  # isort: skip
