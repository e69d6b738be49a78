"""The contract suite: what every backend must do, as pytest tests with NumPy as the oracle.

A test file of a few lines runs all of it on a backend:

    from needle_ndarray.testing import ContractSuite

    class TestMine(ContractSuite):
        device = "mine"             # a Device, or the name under which the backend is registered

Every verb is called as NDArray calls it: every op of the table, every dtype it takes, operands and results in every kind of
view (see `cases.KINDS`). Results are checked with the memory around them, which a verb must leave alone. The rules for how
near a result has to be are in `oracle`, and nowhere else.
"""

import pytest

for _module in (
    "calls",
    "cases",
    "oracle",
    "convolution",
    "elementwise",
    "halves",
    "movement",
    "network",
    "optimizers",
    "products",
    "randomness",
    "recurrent",
    "reductions",
    "rules",
    "tables",
):
    pytest.register_assert_rewrite(f"{__name__}.{_module}")

from needle_ndarray.testing.cases import KINDS, LAYOUTS, Canvas, Suite, values  # noqa: E402
from needle_ndarray.testing.convolution import ConvolutionSuite  # noqa: E402
from needle_ndarray.testing.elementwise import ElementwiseSuite  # noqa: E402
from needle_ndarray.testing.halves import HalfSuite  # noqa: E402
from needle_ndarray.testing.movement import InterfaceSuite, MovementSuite  # noqa: E402
from needle_ndarray.testing.network import NetworkSuite  # noqa: E402
from needle_ndarray.testing.optimizers import OptimizerSuite  # noqa: E402
from needle_ndarray.testing.products import FusedSuite, ProductSuite  # noqa: E402
from needle_ndarray.testing.randomness import RandomSuite  # noqa: E402
from needle_ndarray.testing.recurrent import RecurrentSuite  # noqa: E402
from needle_ndarray.testing.reductions import ReductionSuite  # noqa: E402
from needle_ndarray.testing.rules import RuleSuite  # noqa: E402
from needle_ndarray.testing.tables import each  # noqa: E402


class ContractSuite(
    InterfaceSuite,
    MovementSuite,
    ElementwiseSuite,
    HalfSuite,
    ReductionSuite,
    ProductSuite,
    FusedSuite,
    ConvolutionSuite,
    NetworkSuite,
    RecurrentSuite,
    OptimizerSuite,
    RandomSuite,
    RuleSuite,
):
    """All of the contract. Subclass it as `Test...` with a `device`."""


__all__ = ["ContractSuite", "Suite", "KINDS", "LAYOUTS", "Canvas", "each", "values"]
