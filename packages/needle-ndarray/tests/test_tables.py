"""Cases within one test: all of them run, and every one that fails is named."""

import pytest

from needle_ndarray.testing.tables import TESTS_OF_THEIR_OWN, each

pytestmark = pytest.mark.skipif(TESTS_OF_THEIR_OWN, reason="every case is a test of its own")


class Shelf:
    """A test with its table, and the cases that have run."""

    def __init__(self):
        self.seen = []

    @each("kinds", [("compact", "sliced"), ("offset", "offset")])
    @each("n, dtype", [(1, "int32"), (2, "int32"), (3, "bool")])
    def check(self, n, dtype, kinds, wrong=()):
        self.seen.append((n, dtype, kinds))
        if n in wrong and kinds[0] == "compact":
            wrong[n]()


def fails():
    raise AssertionError("\nfirst line\nsecond line")


def says_nothing():
    raise ValueError


def fails_by_name():
    pytest.fail("not this")


def skips():
    pytest.skip("not here")


def test_the_product_of_the_tables_runs():
    shelf = Shelf()
    shelf.check()
    assert len(shelf.seen) == len(set(shelf.seen)) == 6
    assert (2, "int32", ("offset", "offset")) in shelf.seen


@pytest.mark.parametrize(
    "wrong, told",
    [
        (fails, "first line"),
        (says_nothing, "ValueError()"),
        (fails_by_name, "not this"),
        (skips, "not here"),
    ],
)
def test_a_case_that_fails_is_named(wrong, told):
    shelf = Shelf()
    with pytest.raises(AssertionError) as caught:
        shelf.check(wrong={2: wrong})
    assert str(caught.value) == f"1 of 6 cases fail: kinds=compact,sliced, n=2, dtype=int32: {told}"
    assert len(shelf.seen) == 6


def test_all_that_fail_are_named_and_the_first_is_the_cause():
    with pytest.raises(AssertionError) as caught:
        Shelf().check(wrong={1: says_nothing, 3: fails})
    first, second = str(caught.value).splitlines()
    assert first.startswith("2 of 6 cases fail: kinds=compact,sliced, n=1, dtype=int32: ")
    assert second == "kinds=compact,sliced, n=3, dtype=bool: first line"
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_process_that_ends_is_not_a_failure():
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Shelf().check(wrong={1: stop})


def test_a_table_without_rows():
    with pytest.raises(AssertionError, match="check: no cases of n"):

        @each("n", [])
        def check(n):
            pass


@pytest.mark.parametrize("outer", [1, 2])
@each("inner", "ab")
@pytest.mark.parametrize("other", [3])
def test_pytest_gives_what_the_table_does_not(outer, inner, other, host_device):
    assert outer in (1, 2) and inner in ("a", "b") and other == 3 and host_device.enabled()
