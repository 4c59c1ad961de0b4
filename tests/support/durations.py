"""How long each test takes: a run writes it down, ``./tests/run durations`` prints it.

Seconds of wall time, set-up and clean-up included. The time of a session fixture counts
for the first test that uses it.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

FILE = Path(".pytest_cache", "durations.json")
SLOWEST = 50


class Recorder:
    """Adds up the phases of each test, of all processes, and writes them when the run ends."""

    def __init__(self):
        self._seconds: Counter[str] = Counter()

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report):
        self._seconds[report.nodeid] += report.duration

    @pytest.hookimpl
    def pytest_sessionfinish(self):
        if self._seconds:
            FILE.parent.mkdir(exist_ok=True)
            FILE.write_text(json.dumps(dict(self._seconds.most_common())), encoding="utf-8")


def printed(seconds: dict[str, float]) -> str:
    """The folders, then the slowest tests, with the longest first."""
    folders: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for test, taken in seconds.items():
        folder = "/".join(test.split("::")[0].split("/")[:-1])
        folders[folder] += taken
        tests[folder] += 1
    lines = [f"{'seconds':>9}  {'tests':>6}  folder"]
    lines += [f"{taken:9.1f}  {tests[name]:6d}  {name}" for name, taken in folders.most_common()]
    lines += [f"{sum(seconds.values()):9.1f}  {len(seconds):6d}  in all", ""]
    slowest = Counter(seconds).most_common(SLOWEST)
    return "\n".join([*lines, *(f"{taken:9.2f}  {test}" for test, taken in slowest)])


if __name__ == "__main__":
    if not FILE.exists():
        sys.exit(f"no run has written {FILE} yet; run ./tests/run first")
    print(printed(json.loads(FILE.read_text(encoding="utf-8"))))
