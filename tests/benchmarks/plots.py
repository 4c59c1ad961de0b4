"""The plots: lateness distributions; rates and memory against the number of waiting entries.

Runs as a program of its own in an environment that has matplotlib: ``plots.py FIGURES FOLDER``.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def draw(whole: dict[str, Any], folder: Path, cache: Path) -> None:
    """Write the PNGs; says so in a sentence where matplotlib cannot be had."""
    from tests.benchmarks.environments import python_with

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
    _lateness(medians, Path(folder) / "lateness.png")
    if "growth" in medians:
        _growth(medians["growth"], Path(folder) / "growth.png")


def _lateness(medians: dict[str, Any], path: Path) -> None:
    from matplotlib import pyplot as plt

    samples = {
        f"{measure}: {name.removesuffix('_samples').replace('_', ' ')}": sorted(late)
        for measure, figures in medians.items()
        for name, late in figures.items()
        if name.endswith("_samples")
    }
    if not samples:
        return
    figure, axes = plt.subplots(figsize=(9, 5))
    for label, late in samples.items():
        share = [100 * (at + 1) / len(late) for at in range(len(late))]
        axes.plot([max(each, 0.05) for each in late], share, label=label)
    axes.set(xscale="log", xlabel="late by, ms", ylabel="tasks, %", title="Lateness")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120, bbox_inches="tight")


def _growth(growth: dict[str, float], path: Path) -> None:
    from matplotlib import pyplot as plt

    prefix = "bytes_per_task_"
    sizes = sorted(int(name.removeprefix(prefix)) for name in growth if name.startswith(prefix))
    figure, (rates, memory) = plt.subplots(1, 2, figsize=(12, 5))
    for name in ("handover_rate", "schedule_rate", "get_rate", "reschedule_rate", "cancel_rate"):
        rates.plot(sizes, [growth[f"{name}_{size}"] for size in sizes], "o-", label=name[:-5])
    rates.set(xscale="log", yscale="log", xlabel="waiting", ylabel="per second", title="Rates")
    rates.legend()
    megabytes = [growth[f"{prefix}{size}"] * size / 1e6 for size in sizes]
    memory.plot(sizes, megabytes, "o-", label="Redis")
    memory.plot(sizes, [growth[f"scanner_mb_{size}"] for size in sizes], "o-", label="scanner")
    memory.set(xscale="log", yscale="log", xlabel="waiting", ylabel="MB", title="Memory")
    memory.legend()
    for axes in (rates, memory):
        axes.grid(visible=True, alpha=0.3)
    figure.savefig(path, dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:])
