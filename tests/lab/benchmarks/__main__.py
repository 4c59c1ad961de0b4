"""``./tests/run benchmarks``: measure, print one table, keep the figures."""

import argparse
import importlib
import json
import os
import pkgutil
import platform
import signal
import sys
import tempfile
import time
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.lab.benchmarks import measures, plots, table
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.stats import Figures, medians
from tests.support.redis_programs import redis_binaries

# In the order in which they run: the first lines of the table come first.
ORDER = (
    "direct_handover",
    "million_handover",
    "move_profile",
    "many_scanners",
    "relay_rabbitmq",
    "relay_redis",
    "one_task",
    "put_off",
    "many_tasks",
    "by_id",
    "script_parts",
    "selections",
    "preflight",
    "lateness",
    "execution",
    "crowd",
    "idle",
    "memory",
    "growth",
    "worker_memory",
    "worker_start",
    "weight",
    "adoption",
    "cluster",
    "hundred_scanners",
    "thousand_scanners",
    "busy_worker",
    "peers",
)


def main() -> int:
    options = _arguments()
    # By default SIGTERM skips every clean-up; so it becomes an orderly end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="delayq-benchmarks-") as folder:
        cache = options.cache or Path(folder)
        rounds, failed = _measure(options, cache)
        _report(options, rounds)
        if options.plots:
            plots.draw(_whole(options, rounds), options.plots, cache)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    found = {module.name for module in pkgutil.iter_modules(measures.__path__)}
    names = [name for name in ORDER if name in found]
    parser = argparse.ArgumentParser(prog="./tests/run benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(names))
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument("--quick", action="store_true", help="smaller counts, noisier figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw PNGs")
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="keep the environments of peers and plots here; a temporary folder by default",
    )
    parser.add_argument(
        "--largest",
        type=int,
        default=1_000_000,
        metavar="N",
        help="waiting entries that `growth` ends with; 10000000 takes 15 GB and half an hour",
    )
    options = parser.parse_args()
    options.names = options.names or names
    if unknown := set(options.names) - set(names):
        parser.error(
            f"no such measurement: {', '.join(sorted(unknown))}; there are {', '.join(names)}"
        )
    return options


def _measure(options: argparse.Namespace, cache: Path) -> tuple[table.Rounds, bool]:
    """Every measurement in every round; Ctrl-C ends it with the figures so far."""
    rounds: table.Rounds = {name: [] for name in options.names}
    turns = [(turn, name) for turn in range(1, options.rounds + 1) for name in options.names]
    failed = False
    with Lab(quick=options.quick, cache=cache, largest=options.largest) as lab:
        for turn, name in turns:
            started = time.monotonic()
            try:
                rounds[name].append(_one(lab, name))
            except KeyboardInterrupt:
                failed = True
                break
            except Exception:
                # A failed measurement must not cost an hour of the others' figures.
                traceback.print_exc()
                failed = True
            took = time.monotonic() - started
            print(f"round {turn} of {options.rounds}: {name}, {took:.0f} s", file=sys.stderr)
    return rounds, failed


def _one(lab: Lab, name: str) -> Figures:
    measured: Figures = importlib.import_module(f"tests.lab.benchmarks.measures.{name}").measure(
        lab
    )
    return measured


def _report(options: argparse.Namespace, rounds: table.Rounds) -> None:
    print(_machine(options))
    table.show(rounds)
    if options.json:
        options.json.write_text(json.dumps(_whole(options, rounds), indent=1), encoding="utf-8")


def _whole(options: argparse.Namespace, rounds: table.Rounds) -> dict[str, Any]:
    return {
        "machine": _machine(options),
        "medians": {name: medians(figures) for name, figures in rounds.items() if figures},
        "rounds": rounds,
    }


def _machine(options: argparse.Namespace) -> str:
    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("celery", "kombu", "redis")
    )
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    return (
        f"{os.cpu_count()} cores (load {load}), {platform.system()}, "
        f"Python {platform.python_version()}, Redis {redis_binaries()[0][0]}, {versions}"
        f"; {options.rounds} rounds{', quick: smaller counts than the lines say' * options.quick}"
    )


if __name__ == "__main__":
    sys.exit(main())
