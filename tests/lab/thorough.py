"""``./tests/run thorough``: trials too long or too random for every change; writes one page.

Run it before an issue is called done. Each trial is a command of ``./tests/run`` and runs even
if another one failed. The output of each is kept beside the page.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(".pytest_cache", "thorough")
# The name of each trial, and its command; MINUTES stands for the value of --minutes.
TRIALS = {
    "simulator, fresh seeds": "simulate --minutes MINUTES",
    # The longest may take 1,800 seconds.
    "tests marked thorough": "-m thorough -o faulthandler_timeout=2000",
    "the rest without each leaf, and the core alone": "leaves",
    "soak": "soak --minutes MINUTES",
    "faults": "faults",
    "rules, with workers killed": "recurring kills",
    "failovers of Sentinel": "failovers --runs 6",
    "faults of a Cluster": "cluster --minutes 3",
    "mutants": "mutants",
    "tracers": "tracers",
    "entries of other schedulers": "beats",
    "comparison": "comparison",
    "pre-releases": "prereleases",
}


def run(name: str, command: str) -> str:
    """Run one trial and return its row of the page."""
    log = FOLDER / f"{name.replace(' ', '-').replace(',', '')}.log"
    began = time.monotonic()
    with log.open("w") as out:
        status = subprocess.run(
            ["tests/run", *command.split()], stdout=out, stderr=subprocess.STDOUT, check=False
        ).returncode
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    verdict = "ok" if status == 0 else f"FAILED ({status})"
    seconds = time.monotonic() - began
    return f"{name:28}  {verdict:12}  {seconds:6.0f} s  {(lines or ['nothing was printed'])[-1]}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="./tests/run thorough", description=__doc__)
    parser.add_argument("--minutes", default="10", help="of the simulator, and of the soak")
    parser.add_argument("--only", choices=TRIALS, action="append", help="this trial; repeatable")
    asked = parser.parse_args()
    # By default SIGTERM would leave the trial running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, command in TRIALS.items():
        if not asked.only or name in asked.only:
            rows.append(run(name, command.replace("MINUTES", asked.minutes)))
            print(rows[-1], flush=True)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    head = f"commit {commit}, load {os.getloadavg()[0]:.1f} at the end"
    page = FOLDER / "page.txt"
    page.write_text("\n".join([head, "", *rows, ""]), encoding="utf-8")
    print(f"\nThe page is {page}, and each trial's output lies beside it.")
    sys.exit(any("FAILED" in row for row in rows))


if __name__ == "__main__":
    main()
