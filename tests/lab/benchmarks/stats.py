"""The few statistics that the table needs."""

import math
import statistics
from collections.abc import Sequence

Figures = dict[str, float | list[float]]


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: a value that was really seen."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def lateness(name: str, late_ms: Sequence[float]) -> Figures:
    """Minimum, p50, p99 and maximum of *late_ms*, and the samples themselves for the plots."""
    return {
        f"{name}_min_ms": min(late_ms),
        f"{name}_p50_ms": percentile(late_ms, 50),
        f"{name}_p99_ms": percentile(late_ms, 99),
        f"{name}_max_ms": max(late_ms),
        f"{name}_samples": [round(late, 3) for late in late_ms],
    }


def medians(rounds: Sequence[Figures]) -> Figures:
    """The median of each figure; samples are put together."""
    merged: Figures = {}
    for name in dict.fromkeys(name for figures in rounds for name in figures):
        seen = [figures[name] for figures in rounds if name in figures]
        if isinstance(seen[0], list):
            merged[name] = [sample for samples in seen for sample in samples]
        else:
            merged[name] = statistics.median(seen)
    return merged


def ratio(rounds: Sequence[Figures], figure: str, beside: str) -> float | None:
    """The median of the rounds' own ratios, so noise that hits both cancels out."""
    found = [
        figures[figure] / figures[beside]
        for figures in rounds
        if figure in figures and figures.get(beside)
    ]
    return statistics.median(found) if found else None
