"""Hand-over by two and by eight scanners: not slower than by one, and no entry twice."""

from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.measures.direct_handover import handover
from tests.lab.benchmarks.stats import Figures


def measure(lab: Lab) -> Figures:
    """200,000 due, each count of scanners in turn; every list is read back and compared."""
    count = lab.scaled(200_000, 50_000)
    figures: Figures = {}
    for scanners in (1, 2, 8):
        found = handover(lab, count, scanners=scanners, check=True)
        figures |= {f"{name}_{scanners}": figure for name, figure in found.items()}
    return figures
