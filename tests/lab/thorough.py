"""``./tests/run thorough``: trials too long or too random for every change, and one page of them.

    trial --its output--> .pytest_cache/thorough/NAME.log
       '--verdict, commit, seconds, last line--> results.json --> page.md

Run it before an issue is called done; it takes some three hours of two cores. Each trial is a
command of ``./tests/run`` and runs even if another one failed. A trial that was not run this time
keeps its row, with its commit: ``--only`` repeats one, and ``--rest`` runs those that have none for
this commit. ``--write`` runs none, and puts the rows into the page of the docs.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

FOLDER = Path(".pytest_cache", "thorough")
RESULTS = FOLDER / "results.json"
PAGE = Path("tests", "lab", "trials.md")
# The name of each trial, and its command; MINUTES stands for the value of --minutes.
TRIALS = {
    "simulator, fresh seeds": "simulate --minutes MINUTES",
    "simulator, three shards": "simulate --minutes MINUTES --shards 3",
    # The longest may take 1,800 seconds.
    "tests marked thorough": "-m thorough -o faulthandler_timeout=2000",
    "the rest without each leaf": "leaves",
    "proof": "proof",
    "the README's commands and the proof, from the built wheel": "wheel",
    "soak": "soak --minutes MINUTES",
    "faults": "faults",
    "a Redis that hangs": "hung",
    "rules, with workers killed": "recurring kills",
    "failovers of Sentinel": "failovers --runs 6",
    "faults of a Cluster": "cluster --minutes 3",
    "mutants": "mutants --seconds 120",
    "tracers": "tracers",
    "entries of other schedulers": "beats",
    "SQS, by moto's imitation": "sqs",
    "comparison": "comparison",
    "pre-releases": "prereleases",
    "Python 3.15": "python 3.15",
}
HEAD = """\
| trial | command | result | seconds | its last line | commit, day |
|---|---|---|--:|---|---|"""

Result = Mapping[str, Any]


def run(name: str, command: str) -> Result:
    """Run one trial."""
    log = FOLDER / f"{name.replace(' ', '-').replace(',', '')}.log"
    began = time.monotonic()
    with log.open("w") as out:
        status = subprocess.run(
            ["tests/run", *command.split()],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return {
        "command": command,
        "verdict": "ok" if status == 0 else f"FAILED ({status})",
        "seconds": round(time.monotonic() - began),
        "last": (lines or ["nothing was printed"])[-1],
        "commit": commit(),
        "day": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    }


def commit() -> str:
    """Return the commit; ``unknown`` without git, or without a repository."""
    line = ["git", "describe", "--always", "--dirty"]
    try:
        said = subprocess.run(line, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        said = ""
    return said or "unknown"


def row(name: str, found: Result) -> str:
    last = found["last"].strip("= ")
    last = "a table" if last.startswith("|") else last.replace("|", "\\|")
    cells = f"`{found['command']}`", found["verdict"], f"{found['seconds']:,}", last
    return f"| {name} | {' | '.join(cells)} | {found['commit']}, {found['day']} |"


def page(results: Mapping[str, Result]) -> str:
    """The rows of all trials that have a result; then the names of the others."""
    rows = [row(name, results[name]) for name in TRIALS if name in results]
    missing = [name for name in TRIALS if name not in results]
    end = [f"Not run: {'; '.join(missing)}."] if missing else []
    return "\n".join([HEAD, *rows, "", *end]).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="./tests/run thorough", description=__doc__)
    parser.add_argument("--minutes", default="10", help="of the simulator, and of the soak")
    parser.add_argument("--only", choices=TRIALS, action="append", help="this trial; repeatable")
    parser.add_argument(
        "--rest", action="store_true", help="trials without a result of this commit"
    )
    parser.add_argument("--write", action="store_true", help="the page of the docs; run none")
    asked = parser.parse_args()
    # By default SIGTERM would leave the trial running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    FOLDER.mkdir(parents=True, exist_ok=True)
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    if asked.write:
        before, _, _ = PAGE.read_text("utf-8").partition(HEAD)
        PAGE.write_text(before + page(results), encoding="utf-8")
        return
    done = {name for name, found in results.items() if asked.rest and found["commit"] == commit()}
    chosen = [name for name in asked.only or TRIALS if name not in done]
    for name in chosen:
        results[name] = run(name, TRIALS[name].replace("MINUTES", asked.minutes))
        RESULTS.write_text(json.dumps(results, indent=2), encoding="utf-8")
        (FOLDER / "page.md").write_text(page(results), encoding="utf-8")
        print(row(name, results[name]), flush=True)
    print(f"\nThe page is {FOLDER / 'page.md'}, and each trial's output lies beside it.")
    sys.exit(any(results[name]["verdict"] != "ok" for name in chosen))


if __name__ == "__main__":
    main()
