"""An epoch of data loading, as each framework does it: a function that goes through all batches and returns how many rows came."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workloads import DATASET


def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random(DATASET, dtype=np.float32), rng.integers(0, 10, DATASET[0])


def counted(loader: Any) -> Callable[[], int]:
    return lambda: sum(len(x) for x, _ in loader)


def needle(kind: str) -> Callable[[], int]:
    from needle_nn.data import DataLoader, NDArrayDataset

    workers: Any = {"num_workers": 2} if kind == "workers" else {}
    loader = DataLoader(NDArrayDataset(*arrays()), 100, shuffle=kind != "order", **workers)
    return lambda: sum(x.shape[0] for x, _ in loader)


def numpy(kind: str) -> Callable[[], int]:
    x, y = arrays()
    rng = np.random.default_rng(0)

    def batches():
        order = np.arange(len(x)) if kind == "order" else rng.permutation(len(x))
        for start in range(0, len(x), 100):
            chosen = order[start : start + 100]
            yield x[chosen], y[chosen]

    return lambda: sum(len(x) for x, _ in batches())


def torch(kind: str) -> Callable[[], int]:
    import torch
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

    data = TensorDataset(*(torch.from_numpy(a) for a in arrays()))
    if kind == "batches":  # a list of indices at once, instead of items that are stacked
        return counted(DataLoader(data, batch_size=None, sampler=BatchSampler(RandomSampler(data), 100, False)))
    workers: Any = {"num_workers": 2, "persistent_workers": True} if kind == "workers" else {}
    return counted(DataLoader(data, 100, shuffle=kind != "order", **workers))
