"""Probes that measure; each returns its figures by name."""

import random
import statistics
import time

from tests.lab.comparison.answers import all_offline
from tests.lab.comparison.site import Site, pause, pause_until
from tests.lab.comparison.ways.way import Way

Figures = dict[str, float]

WAITING = 2_000
HOUR = 3600.0
SAMPLES = 9
CALLS = 300
# All jobs are taken in once memory grows by less, over as many seconds; or the wait is given up.
STILL_MB, STILL_SECONDS, FILLED = 0.1, 3, 45
BEHIND_DELAY, BEHIND_TIMEOUT = 6.0, 20.0


def load(site: Site, way: Way) -> Figures:
    """Lateness while nothing waits, memory of waiting jobs, and lateness behind those."""
    site.start(*way.roles.values())
    way.send("warm")
    assert site.wait_ran("warm")
    return {**_lateness(site, way), **_memory(site, way), **_behind(site, way)}


def _lateness(site: Site, way: Way) -> Figures:
    due = {}
    for number in range(SAMPLES):
        delay = BEHIND_DELAY + number + random.random()
        due[f"job-{number}"] = time.time() + delay
        way.schedule(f"job-{number}", delay)
    pause_until(max(due.values()))
    assert site.wait_ran(*due)
    late = [ran - due[label] for label, ran in site.ran if label in due]
    return {"late_ms": statistics.median(late) * 1000, "least_ms": min(late) * 1000}


def _memory(site: Site, way: Way) -> Figures:
    before = site.memory_mb()
    way.fill(WAITING, HOUR)
    seen = [site.memory_mb()]
    until, still = time.monotonic() + FILLED, False
    while not still and time.monotonic() < until:
        pause(1)
        seen.append(site.memory_mb())
        still = len(seen) > STILL_SECONDS and seen[-1] - seen[-1 - STILL_SECONDS] < STILL_MB
    return {"memory_mb": (seen[-1] - before) * 10_000 / WAITING, "still": float(still)}


def _behind(site: Site, way: Way) -> Figures:
    due = time.time() + BEHIND_DELAY
    way.schedule("behind", BEHIND_DELAY)
    ran = site.wait_ran("behind", timeout=BEHIND_DELAY + BEHIND_TIMEOUT)
    return {"behind_s": dict(site.ran).get("behind", 0) - due, "behind_ran": float(ran)}


def rate(site: Site, way: Way) -> Figures:
    """Calls a second, one by one, in one process."""
    all_offline(site, way)
    way.one_by_one(20, HOUR)
    return {"calls_per_s": CALLS / way.one_by_one(CALLS, HOUR)}
