"""Re-export of needle_ndarray under the course's module name."""

from needle_ndarray import *
