"""Calls as they are meant: a function of Needle with arguments that it takes. hostile.py puts lies among these."""

# ruff: noqa: E501  (several rows of the table on a line)
import random
from collections.abc import Callable
from typing import Any

import numpy as np

import needle as ndl
import needle_ndarray as nd
from needle import nn, optim
from needle_ndarray import ndarray as internals
from needle_ndarray.backend import TABLES
from needle_ndarray.testing.hostile import lying

INDEX = nd.zeros(20000, "int64")  # what the writing thread writes to
VALUES = nd.ones((40, 8))


def make_tensor(rng: random.Random) -> ndl.Tensor:
    x = ndl.Tensor(np.ones(rng.choice([(), (3,), (3, 4), (2, 3, 4), (0, 2)]), "float32"))
    return rng.choice(
        [x, x * 2.0, ndl.ops.split(x, 0)[0] if x.ndim and x.shape[0] else x, ndl.Tensor(lying(rng, [1.0, 2.0]))]
    )


def right_call(rng: random.Random) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """A function with arguments that it takes."""
    a, i, x = VALUES, INDEX[:40], make_tensor(rng)
    square, image = nd.ones((8, 8)), nd.ones((1, 6, 6, 2))
    t = ndl.Tensor(np.ones((3, 4), "float32"))
    grown = t * 1.0
    backend, sums = nd.cpu().backend, TABLES["reduce"]["sum"]
    table: list[tuple[Callable[..., Any], list[Any], dict[str, Any]]] = [
        (nd.NDArray.as_strided, [a, (4, 3), (8, 1), 5], {}), (nd.NDArray.make, [(4, 3), (3, 1)], {"offset": 2}),
        (nd.NDArray.make, [(4, 3), None, None, a._handle, 8], {}), (nd.NDArray.reshape, [a, (8, 40)], {}),
        (nd.NDArray.permute, [a, (1, 0)], {}), (nd.NDArray.swapaxes, [a, 0, 1], {}), (nd.NDArray.broadcast_to, [a, (2, 40, 8)], {}),
        (nd.NDArray.__getitem__, [a, (slice(1, 9, 2), None, 3)], {}), (nd.NDArray.__getitem__, [a, ([1, 2], 3)], {}),
        (nd.NDArray.__setitem__, [a.copy(), (slice(0, 4), 1), 2.0], {}), (nd.NDArray.__setitem__, [a.copy(), [1, 2], 1.0], {}),
        (nd.take, [a, INDEX], {"axis": 0}), (nd.take, [a, [0, 1]], {"axis": 1}), (nd.scatter_add, [nd.ones(1000), INDEX, nd.ones(20000)], {}),
        (nd.scatter_add, [a.copy(), i, nd.ones((40, 8))], {"axis": 0}), (nd.take_along_axis, [a, nd.zeros((40, 1), "int64")], {"axis": 1}),
        (nd.one_hot, [8, i], {}), (nd.where, [a > 0, a, 2.0], {}), (nd.concatenate, [[a, a]], {"axis": 0}), (nd.stack, [[a, a]], {"axis": 1}),
        (nd.pad, [a, ((1, 2), (0, 3))], {}), (nd.tile, [a, (2, 3)], {}), (nd.repeat, [a, 3], {"axis": 0}), (nd.split, [a, 4], {"axis": 0}),
        (nd.roll, [a, 3], {"axis": 0}), (nd.moveaxis, [a, 0, 1], {}), (nd.einsum, ["ij,jk->ik", a, square], {}), (nd.matmul, [a, square], {}),
        (nd.add, [a, 2.0], {"out": a.copy()}), (nd.zeros, [(3, 4)], {"dtype": "float32"}), (nd.full, [(3,), 2.5], {}), (nd.arange, [0, 9, 2], {}),
        (nd.eye, [4], {}), (nd.NDArray.sum, [a], {"axis": (0, 1)}), (nd.NDArray.argmax, [a, 1], {}), (nd.NDArray.softmax, [a, -1], {}),
        (nd.NDArray.logsumexp, [a, (0, 1)], {}), (nd.NDArray.var, [a, 0], {}), (nd.NDArray.cumsum, [a, 1], {}), (nd.NDArray.squeeze, [nd.ones((1, 3)), 0], {}),
        (nd.NDArray.__dlpack__, [a], {"max_version": (1, 0)}), (nd.from_dlpack, [a], {}), (nd.from_numpy, [np.ones((3, 4), "float32")], {}),
        (nd.NDArray.__mul__, [a, 2.0], {}), (nd.NDArray.__pow__, [a, 2], {}), (nd.NDArray.__iadd__, [a.copy(), 1], {}), (nd.NDArray.__eq__, [a, 1.0], {}),
        (nd.clip, [a, 0.0, 1.0], {}), (nd.layer_norm, [a, nd.ones(8), nd.ones(8)], {}), (nd.cross_entropy, [a, i], {}),
        (nd.conv2d, [image, nd.ones((3, 3, 2, 4)), 1, 1], {}), (nd.max_pool2d, [image, 2, 2], {}), (nd.attention, [square, square, square], {}),
        (nd.sgd_step, [[a.copy()], [a]], {"lr": 0.1}), (nd.adam_step, [[a.copy()], [a], [a.copy()], [a.copy()]], {"lr": 0.1}),
        (internals.run_step, ["sgd_step", TABLES["step"]["sgd"], ([a.copy()], [a]), (0.1, 0.0, 0.0, 0.0, 0.0, 1.0)], {}),
        (backend.take, [a, i, nd.ones((40, 8))], {}), (backend.scatter, [TABLES["scatter"]["put"], nd.ones((40, 8)), i, a.copy()], {}),
        (backend.scatter, [TABLES["scatter"]["scatter_add"], nd.ones((40, 8)), i, a.copy()], {}),
        (backend.reduce, [sums, a, nd.ones(8), (0,)], {}),
        (backend.conv2d, [TABLES["conv2d"]["conv2d"], image, nd.ones((3, 3, 2, 4)), nd.ones((1, 6, 6, 4)), (1, 1), ((1, 1), (1, 1)), (1, 1), 1], {}),
        (backend.matmul_tiled, [nd.ones(64)._handle, nd.ones(64)._handle, nd.ones(64)._handle, 8, 8, 8], {}),
        (ndl.autograd.gradients, [[grown], [t]], {}), (ndl.autograd.find_topo_sort, [[grown]], {}), (ndl.autograd.sum_node_list, [[t, t]], {}),
        (ndl.Tensor.backward, [grown.sum()], {}), (ndl.Tensor.backward, [grown, t], {"accumulate": True}), (ndl.ops.stack, [[t, t], 0], {}),
        (ndl.ops.concatenate, [[t, t], 0], {}), (ndl.ops.transpose, [t, (0, 1)], {}), (ndl.ops.permute, [t, (1, 0)], {}), (ndl.ops.pad, [t, ((1, 1), (0, 0))], {}),
        (ndl.ops.getitem, [t, ([0, 1], 2)], {}), (ndl.ops.take, [t, [0, 1], 0], {}), (ndl.ops.reshape, [t, (4, 3)], {}), (ndl.ops.broadcast_to, [t, (2, 3, 4)], {}),
        (ndl.Tensor.__mul__, [t, 2.0], {}), (ndl.Tensor.__sub__, [t, x], {}), (ndl.Tensor.__pow__, [t, 2], {}), (ndl.Tensor.__setitem__, [t * 1.0, 0, 1.0], {}),
        (optim.SGD, [[ndl.nn.Parameter(nd.ones(3))]], {"lr": 0.1}), (optim.Adam, [[ndl.nn.Parameter(nd.ones(3))]], {"lr": 0.1}),
        (optim.clip_grad_norm, [[ndl.nn.Parameter(nd.ones(3))], 1.0], {}), (nn.Linear, [4, 2], {}), (ndl.TensorTuple.make_const, [[nd.ones(2)]], {}),
        (ndl.TensorTuple.__getitem__, [ndl.ops.split(t, 0), 1], {}), (ndl.Tensor, [[1.0, 2.0]], {"dtype": "float32"}), (ndl.init.rand, [3, 4], {}),
    ]  # fmt: skip
    return rng.choice(table)
