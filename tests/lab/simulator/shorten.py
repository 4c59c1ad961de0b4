"""The same finding from as few faults, calls and processes as possible (Zeller's ddmin)."""

from collections.abc import Callable

from tests.lab.simulator.simulation import Result

MOST = 600  # runs

Run = Callable[[frozenset[str]], Result]


def shortened(run: Run, found: Result) -> Result:
    """Leave out decisions, many at once and then one by one, while the same rule is broken.

    Args:
        run: Runs the seed of *found* without some of its decisions.
        found: A run that ended with a finding.
    """
    without: frozenset[str] = frozenset()
    runs, size = 0, max(1, len(found.taken) // 2)
    while runs < MOST:
        before, start = found, 0
        while start < len(found.taken) and runs < MOST:
            chosen = found.taken[start : start + size]
            other, runs = run(without.union(chosen)), runs + 1
            if other.finding and other.finding.rule == found.finding.rule:
                without, found = without.union(chosen), other
            else:
                start += size
        if size == 1 and found is before:
            break
        size = max(1, size // 2)
    return found
