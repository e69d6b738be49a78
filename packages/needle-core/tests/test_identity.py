"""== is identity, and where that could be taken for a value: warnings, errors, truth."""

import warnings

import numpy as np
import pytest

import needle as ndl
import needle_ndarray as nd
from needle import ops

LABELS = ndl.Tensor(np.array([0, 1, 1]))
MASK = ndl.Tensor(np.array([True, False, True]))
FLOATS = ndl.Tensor([0.0, 1.0, 1.0])

VALUES = {
    "an int": (LABELS, 1),
    "a float": (FLOATS, 1.0),
    "a NumPy number": (FLOATS, np.float32(1)),
    "a NumPy bool": (MASK, np.True_),
    "a NumPy array": (LABELS, np.array([0, 1, 1])),
    "an NDArray": (FLOATS, nd.array([0.0, 1.0, 1.0])),
    "a list": (LABELS, [0, 1, 1]),
    "labels": (LABELS, ndl.Tensor(np.array([0, 1, 1]))),
    "masks": (MASK, ndl.Tensor(np.array([True, False, True]))),
}


@pytest.mark.parametrize("case", VALUES)
def test_equality_that_was_meant_for_values_warns(case):
    a, b = VALUES[case]
    with pytest.warns(RuntimeWarning, match=r"Tensor == \w+ compares identities and is False; \.equal\(\)"):
        assert (a == b) is False
    with pytest.warns(RuntimeWarning, match=r"Tensor != \w+ compares identities and is True; \.not_equal\(\)"):
        assert (a != b) is True
    if isinstance(b, (np.ndarray, list)):
        with pytest.warns(RuntimeWarning, match=r"compares identities"):
            assert (b == a) is False


def test_equality_that_is_identity_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other, same, none = ndl.Tensor([0.0]), FLOATS, None
        assert other != FLOATS and same == FLOATS and none != FLOATS and LABELS != "labels"
        assert FLOATS in [ndl.Tensor([1.0]), FLOATS] and {FLOATS: 1, LABELS: 2}[LABELS] == 2


# ---- Where a bool cannot be meant --------------------------------------------------------------------------

X = ndl.Tensor(np.arange(6.0).reshape(2, 3))
REFUSED = {
    "where": lambda answer: ops.where(answer, X, 0.0),
    "attention": lambda answer: ops.scaled_dot_product_attention(X, X, X, mask=answer),
    "take": lambda answer: ops.take(X, answer, 0),
    "gather": lambda answer: ops.gather(X, answer),
    "embedding": lambda answer: ops.embedding(answer, X),
    "cross_entropy": lambda answer: ops.cross_entropy(X, answer),
}


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("op", REFUSED)
def test_a_python_bool_is_no_mask_and_no_position(op, answer):
    with pytest.raises(TypeError, match=rf"is {answer}: == compares the identities of Tensors, x\.equal\(y\)"):
        REFUSED[op](answer)


def test_a_condition_of_values_is_one():
    scores = ndl.Tensor([1.0, 2.0, 3.0])
    assert ops.where(LABELS.equal(0), -1.0, scores).tolist() == [-1.0, 2.0, 3.0]
    assert ops.where(np.True_, scores, 0.0).tolist() == [1.0, 2.0, 3.0]


# ---- Truth --------------------------------------------------------------------------

TRUTH = [
    (ndl.Tensor(np.array(0)), False),
    (ndl.Tensor(np.array([3])), True),
    (ndl.Tensor(np.array([[False]])), False),
    (ndl.Tensor(np.array(True)), True),
    ((X > 3).sum(), True),
    ((X > 30).sum(), False),
    ((X > 3).any(), True),
    (ndl.Tensor(0.0), True),
    (ndl.Tensor([0.0, 0.0]), True),
    (ndl.Tensor(np.zeros((0,))), True),
]


@pytest.mark.parametrize(("tensor", "expected"), TRUTH)
def test_truth(tensor, expected):
    assert bool(tensor) is expected


@pytest.mark.parametrize("many", [np.array([1, 2]), np.array([True, True]), np.array([], dtype=np.int64)])
def test_the_truth_of_many_is_refused(many):
    with pytest.raises(ValueError, match=r"the truth of an array of shape .* is ambiguous"):
        bool(ndl.Tensor(many))
