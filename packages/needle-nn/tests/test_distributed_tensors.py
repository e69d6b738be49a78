"""Layers cut within: beside the whole layers, and to the same bits on any number of ranks."""

import re

import pytest
from distributed_helpers import launch, lines_of, needs_mpi, run

import needle as ndl
import needle.distributed as dist
from needle import nn
from needle.testing import check_gradients

_alone: list[str] = []


def alone():
    if not _alone:
        done = run(["distributed_tensors.py"])
        assert done.code == 0, done.err
        _alone.append(done.out.split()[-1])
    return _alone[0]


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_same_bits_on_any_number_of_ranks(ranks):
    done = launch(ranks, "distributed_tensors.py")
    assert done.code == 0, done.out + done.err
    assert [line.split()[-1] for line in lines_of(done, "sha")] == [alone()]


def test_gradients_of_shards():
    linear, x = nn.Linear(4, 6, dtype="float64"), ndl.init.randn(3, 4, dtype="float64", requires_grad=True)
    columns, rows = dist.ColumnLinear(linear, 2), dist.RowLinear(nn.Linear(6, 2, dtype="float64"), 2)
    check_gradients(lambda x: rows([ndl.tanh(y) for y in columns(x)]), x)


class Three(dist.Alone):
    size = 3


MISTAKES = [
    (lambda: dist.ColumnLinear(3), "ColumnLinear: linear: expected a Linear, got an int|got a int"),
    (lambda: dist.ColumnLinear(nn.Linear(2, 5), 2), "ColumnLinear: columns: 5 do not make 2 equal shards"),
    (lambda: dist.RowLinear(nn.Linear(6, 5), 4), "RowLinear: rows: 6 do not make 4 equal shards"),
    (
        lambda: dist.RowLinear(nn.Linear(6, 6), 2, Three()),
        re.escape("RowLinear: 2 shards on 3 ranks: expected 1, 2, 4, ... of them on each"),
    ),
    (
        lambda: dist.HeadsAttention(nn.AttentionLayer(8, 3, 4), 2),
        "HeadsAttention: heads: 3 do not make 2 equal shards",
    ),
    (
        lambda: dist.ShardedLayer(nn.TransformerLayer(8, 2, 4, 8, dropout=0.1), 2),
        "dropout 0.1 within what is cut: its numbers would depend on the cut",
    ),
]


@pytest.mark.parametrize(("call", "told"), MISTAKES)
def test_mistakes_are_one_line(call, told):
    with pytest.raises((TypeError, ValueError), match=told):
        call()
