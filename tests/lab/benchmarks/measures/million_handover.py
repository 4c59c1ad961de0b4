"""The same as ``direct_handover``, with a million due."""

from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.measures.direct_handover import both
from tests.lab.benchmarks.stats import Figures


def measure(lab: Lab) -> Figures:
    """1,000,000 due, in another order than they were scheduled in."""
    return both(lab, lab.scaled(1_000_000, 200_000))
