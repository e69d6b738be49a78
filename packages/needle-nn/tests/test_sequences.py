"""Padding and packing, and recurrent layers over sequences of different lengths: as one sequence at a time."""
# ruff: noqa: NPY002 (NumPy's legacy generator is what numbers come from)

import numpy as np
import pytest

import needle as ndl
from needle import nn
from needle.nn.utils import rnn

LENGTHS = {"sorted": [5, 3, 3, 1], "unsorted": [2, 5, 1, 5], "equal": [4, 4], "one": [3]}
each_lengths = pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)


def sequences(lengths, *shape):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, *shape)).astype("float32") for n in lengths]


@each_lengths
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_there_and_back(lengths, batch_first, shape):
    arrays = sequences(lengths, *shape)
    padded = rnn.pad_sequence([ndl.Tensor(a) for a in arrays], batch_first, 7.0)
    rows = padded.numpy() if batch_first else padded.numpy().swapaxes(0, 1)
    for row, a in zip(rows, arrays, strict=True):
        np.testing.assert_array_equal(row[: len(a)], a)
        assert (row[len(a) :] == 7).all()
    packed = rnn.pack_padded_sequence(padded, lengths, batch_first, enforce_sorted=False)
    assert packed.data.shape == (sum(lengths), *shape) and sum(packed.batch_sizes) == sum(lengths)
    again, found = rnn.pad_packed_sequence(packed, batch_first, 7.0, total_length=6)
    assert found.tolist() == lengths
    again = again.numpy() if batch_first else again.numpy().swapaxes(0, 1)
    np.testing.assert_array_equal(again[:, : max(lengths)], rows)
    assert (again[:, max(lengths) :] == 7).all()
    for part, a in zip(rnn.unpad_sequence(padded, lengths, batch_first), arrays, strict=True):
        np.testing.assert_array_equal(part.numpy(), a)
    np.testing.assert_array_equal(
        rnn.pack_sequence([ndl.Tensor(a) for a in arrays], enforce_sorted=False).data.numpy(), packed.data.numpy()
    )


@each_lengths
@pytest.mark.parametrize("bidirectional", [False, True], ids=["forth", "both ways"])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_packed_as_one_at_a_time(kind, bidirectional, lengths):
    """Outputs, last states and gradients; the states at the start are in the order of the user."""
    np.random.seed(0)
    layer = getattr(nn, kind)(3, 4, 2, bidirectional=bidirectional, dtype="float64")
    arrays = [a.astype("float64") for a in sequences(lengths, 3)]
    states = np.random.default_rng(1).standard_normal((2 * (1 + bidirectional), len(lengths), 4))

    def start(part):
        made = ndl.Tensor(states[:, part], dtype="float64")
        return (made, made * 0.5) if kind == "LSTM" else made

    def flat(found):
        y, last = found
        return y, list(last) if kind == "LSTM" else [last]

    def gradients():
        found = [p.grad.numpy() for p in layer.parameters()]
        for p in layer.parameters():
            p.grad = None
        return found

    padded = rnn.pad_sequence([ndl.Tensor(a, dtype="float64") for a in arrays])
    packed = rnn.pack_padded_sequence(padded, lengths, enforce_sorted=False)
    y, last = flat(layer(packed, start(slice(None))))
    y = rnn.unpad_sequence(rnn.pad_packed_sequence(y)[0], lengths)
    sum((part * part).sum() for part in (*y, *last)).backward()
    found = gradients()
    for i, a in enumerate(arrays):
        expected, ends = flat(layer(ndl.Tensor(a[:, None], dtype="float64"), start(slice(i, i + 1))))
        np.testing.assert_allclose(y[i].numpy(), expected.numpy()[:, 0], rtol=1e-9)
        for s, end in zip(last, ends, strict=True):
            np.testing.assert_allclose(s.numpy()[:, i], end.numpy()[:, 0], rtol=1e-9)
        sum((part * part).sum() for part in (expected, *ends)).backward(accumulate=True)
    for g, wanted in zip(found, gradients(), strict=True):
        np.testing.assert_allclose(g, wanted, rtol=1e-9, atol=1e-12)


def test_dropout_between_layers_only_in_training():
    layer, x = nn.LSTM(3, 4, 2, dropout=0.5), ndl.ones(5, 2, 3)
    assert not np.array_equal(layer(x)[0].numpy(), layer(x)[0].numpy())
    assert np.array_equal(layer.eval()(x)[0].numpy(), layer(x)[0].numpy())
    single = nn.LSTM(3, 4, 1, dropout=0.5)
    assert np.array_equal(single(x)[0].numpy(), single(x)[0].numpy())


REFUSED = [
    (lambda x: rnn.pack_padded_sequence(x, [2, 5, 1]), "lengths increase: sort them, or give enforce_sorted=False"),
    (lambda x: rnn.pack_padded_sequence(x, [6, 5, 1]), "lengths from 1 to 6: expected 1 to 5"),
    (lambda x: rnn.pack_padded_sequence(x, [5, 5, 0]), "lengths from 0 to 5: expected 1 to 5"),
    (lambda x: rnn.pack_padded_sequence(x, [5, 5]), "lengths of shape (2,) for sequences (3, 5, 2): expected (3,) ints"),
    (lambda x: rnn.pad_sequence([]), "pad_sequence: no sequences given"),
    (lambda x: rnn.pad_sequence([x, ndl.ones(2)]), "pad_sequence: sequence 1 is shape (2,), expected Tensors (L, ...)"),
    (lambda x: rnn.pad_packed_sequence(rnn.pack_sequence([x]), total_length=3), "total_length 3: the longest sequence has 5"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refuses_in_one_line(call, message):
    with pytest.raises(ValueError) as caught:
        call(ndl.ones(5, 3, 2))
    assert message in str(caught.value) and "\n" not in str(caught.value)
