"""The plots: how late tasks are; rates and memory against the number of waiting tasks.

Small multiples: a panel each, on common scales, every curve named by its panel. No legend covers
anything. The curves have three colours: blue is this package, black the figures beside it, grey the
others. Every reader can distinguish them.

Runs as a program of its own in an environment that has matplotlib: ``plots.py FIGURES FOLDER``.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OURS, BESIDE, OTHERS, EARLY = "#0072B2", "#000000", "#c8c8c8", "#f6e3d0"  # Okabe and Ito's blue
ACROSS = 4
PANEL = (3.4, 2.5)  # inches

# The titles of panels, by measurement and samples; `%s` is the number in the samples' name.
SITUATIONS = {
    "lateness.raw": "arrival: a bare timer",
    "lateness.scanners": "arrival: %s scanner(s)",
    "execution.delayq_workers": "start: %s worker(s)",
    "execution.native_workers": "start: %s worker(s), Celery eta",
    "crowd.burst": "arrival: beside 20,000 at once",
    "crowd.stream": "arrival: beside 5,000 a second",
    "busy_worker.arrival": "arrival: all cores busy",
    "peers.delayq_late": "beside peers: celery_delayq",
    "peers.celery_eta_late": "peer: Celery eta (start)",
    "peers.longterm_late": "peer: celery-longterm-scheduler",
    "peers.textbook_late": "peer: textbook loop, 1 s",
    "peers.rq_late": "peer: RQ",
    "peers.huey_late": "peer: huey",
    "peers.bullmq_late": "peer: BullMQ (start)",
}
THEIRS = ("lateness.raw", "execution.native", *(name for name in SITUATIONS if "peers." in name))

GROWTH = {
    "handover_rate": "handed over, tasks/s",
    "schedule_rate": "delay_until, calls/s",
    "get_rate": "get, calls/s",
    "reschedule_rate": "reschedule, calls/s",
    "cancel_rate": "cancel, calls/s",
    "page_ms": "a page of 200 tasks(), p90, ms",
    "bytes_per_task": "Redis memory of a task, bytes",
    "scanner_mb": "memory of the scanner, MB",
}


def draw(whole: dict[str, Any], folder: Path, cache: Path) -> None:
    """Write the PNGs; prints a sentence if matplotlib is not available."""
    from tests.lab.benchmarks.environments import python_with

    folder.mkdir(parents=True, exist_ok=True)
    try:
        python = python_with(cache, "plots", "matplotlib")
    except (subprocess.CalledProcessError, OSError):
        print("no plots: matplotlib could not be installed into an environment of its own")
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(whole, file)
        file.flush()
        subprocess.run([python, __file__, file.name, str(folder)], check=True)


def main(figures: str, folder: str) -> None:
    medians = json.loads(Path(figures).read_text(encoding="utf-8"))["medians"]
    if curves := list(_curves(medians)):
        _lateness(curves, Path(folder) / "lateness.png")
    if "growth" in medians:
        _growth(medians["growth"], Path(folder) / "growth.png")


@dataclass(frozen=True)
class Curve:
    """How late the tasks of one situation were, in ms and in order."""

    title: str
    colour: str
    late: list[float]

    @property
    def share(self) -> list[float]:
        """For each of them, how many percent were no later."""
        return [100 * (at + 1) / len(self.late) for at in range(len(self.late))]

    def percentile(self, percent: float) -> float:
        return self.late[max(0, math.ceil(percent / 100 * len(self.late)) - 1)]


def _curves(medians: dict[str, Any]) -> Iterator[Curve]:
    for measure, figures in medians.items():
        for name, late in figures.items():
            if name.endswith("_samples") and late:
                key = f"{measure}.{name.removesuffix('_samples')}"
                yield Curve(_title(key), _colour(key), sorted(late))


def _title(key: str) -> str:
    stem, _, number = key.rpartition("_")
    plural = "" if number == "1" else "s"
    if number.isdigit() and stem in SITUATIONS:
        return (SITUATIONS[stem] % number).replace("(s)", plural)
    return SITUATIONS.get(key, key)


def _colour(key: str) -> str:
    theirs = key.startswith(THEIRS) and key != "peers.delayq_late"
    return BESIDE if theirs else OURS


def _panels(count: int, **shared: Any) -> tuple[Any, list[Any]]:
    """A figure with so many panels, and no empty ones."""
    from matplotlib import pyplot as plt

    across = min(ACROSS, count)
    down = math.ceil(count / across)
    size = (PANEL[0] * across, PANEL[1] * down + 0.6)
    figure, grid = plt.subplots(
        down, across, figsize=size, squeeze=False, layout="constrained", **shared
    )
    panels = list(grid.flat)
    for empty in panels[count:]:
        empty.remove()
    for panel in panels[:count]:
        panel.grid(visible=True, alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=7, labelbottom=True)
    return figure, panels[:count]


def _lateness(curves: list[Curve], path: Path) -> None:
    figure, panels = _panels(len(curves), sharex=True, sharey=True)
    figure.suptitle(
        "How late tasks are: percent of tasks that were no later than this (ms)\n"
        "blue: celery_delayq; black: the figures beside it; grey: all the others",
        fontsize=11,
    )
    least, most = min(each.late[0] for each in curves), max(each.late[-1] for each in curves)
    for panel, curve in zip(panels, curves, strict=True):
        for other in curves:
            panel.plot(other.late, other.share, color=OTHERS, linewidth=0.8, zorder=1)
        panel.plot(curve.late, curve.share, color=curve.colour, linewidth=2, zorder=3)
        panel.set_title(curve.title, fontsize=9, loc="left", color=curve.colour)
        # Linear up to a millisecond on both sides of the due time, so that early tasks show.
        panel.set_xscale("symlog", linthresh=1)
        # On the right there is room for the number beside the latest.
        panel.set_xlim(min(-0.1, 1.5 * least), 12 * most)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.set_ylim(0, 104)
        if least < 0:
            panel.axvspan(1.5 * least, 0, color=EARLY, zorder=0)
        _mark(panel, curve)
    if least < 0:
        panels[0].annotate(
            "early", (0.02, 0.9), xycoords="axes fraction", fontsize=8, color="#8a5a20"
        )
    figure.savefig(path, dpi=120)


def _mark(panel: Any, curve: Curve) -> None:
    """A dot and a number at the median and at the 99th percentile, to the right of the curve."""
    for percent, below in ((50, 3), (99, 9)):
        late = curve.percentile(percent)
        panel.plot([late], [percent], "o", color=curve.colour, markersize=4, zorder=4)
        panel.annotate(
            f"p{percent} {late:,.3g}",
            (late, percent),
            textcoords="offset points",
            xytext=(6, -below),
            fontsize=8,
            color=curve.colour,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
            zorder=5,
        )


def _growth(growth: dict[str, float], path: Path) -> None:
    sizes = sorted(int(each.rpartition("_")[2]) for each in growth if each.startswith("page_ms_"))
    names = [name for name in GROWTH if f"{name}_{sizes[0]}" in growth]
    figure, panels = _panels(len(names), sharex=True)
    figure.suptitle("Against the number of waiting tasks; every scale begins at 0", fontsize=11)
    for panel, name in zip(panels, names, strict=True):
        values = [growth[f"{name}_{size}"] for size in sizes]
        panel.plot(sizes, values, "o-", color=OURS, markersize=4)
        for size, value in zip(sizes, values, strict=True):
            panel.annotate(
                f"{float(f'{value:.3g}'):,g}",
                (size, value),
                textcoords="offset points",
                xytext=(0, 6),
                ha="center",
                fontsize=8,
                color=OURS,
            )
        panel.set_title(GROWTH[name], fontsize=9, loc="left")
        panel.set_xscale("log")
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
        panel.set_xticks([], minor=True)
        panel.set_xlim(sizes[0] / 2, sizes[-1] * 2)
        panel.set_ylim(0, 1.3 * max(values))
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(*sys.argv[1:])
