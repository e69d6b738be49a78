"""A stretch of the hostile sweep: `nox -s hostile` makes a million calls, these take about a minute."""

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("limits on memory need /proc", allow_module_level=True)

import hostile


def test_hostile_calls():
    outcomes, failures = hostile.run(200_000, processes=2, seed=1, quiet=True)
    assert not failures, "\n".join(failures)
    assert outcomes["ok"] > 40_000, outcomes  # enough of them get past the first check
