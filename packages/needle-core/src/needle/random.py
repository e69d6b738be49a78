"""Random numbers: which generator they come from, and its state.

Until `seed` is called, numbers come from NumPy's global generator, so that `np.random.seed` reproduces published results. After
`seed(s)` they come from Needle's own, Philox: the same on every backend and for every number of threads. `seed(None)` goes back.

>>> import needle.random
>>> needle.random.seed(0)
>>> state = needle.random.get_state()
>>> first = needle.random.normal(2, 3)
>>> needle.random.set_state(state)
>>> bool((needle.random.normal(2, 3).numpy() == first.numpy()).all())
True
>>> needle.random.seed(None)
"""

from needle.init import rand as uniform
from needle.init import randb as bernoulli
from needle.init import randn as normal
from needle_ndarray import random as _random

get_state, seed, set_state, stream = _random.get_state, _random.seed, _random.set_state, _random.stream

__all__ = ["bernoulli", "get_state", "normal", "seed", "set_state", "stream", "uniform"]
