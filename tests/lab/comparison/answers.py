"""Probes whose answer is yes, no, or a short fact. Each tries its row, and checks which jobs ran.

A probe gets a site on which nothing runs, and the way's driver. It returns the cell, and the
evidence.
"""

import time
from collections import Counter

from tests.lab.comparison.site import Site, pause, pause_until
from tests.lab.comparison.ways.way import NotOffered, Way

YES, NO, ONLINE = "yes", "no", "only while workers run"
NONE = "none"

Answer = tuple[str, str]

# Extra time for pollers: beat looks for changes every 5 s.
POLLED = 6.0
# By how much a listed time may be rounded.
ROUNDED = 1.0
# A job that is later than this after a kill waits for a time-out.
AT_ONCE = 10.0
LONGEST = 75.0
# How long a message is held, with a shorter time-out.
HELD = 16.0


def all_offline(site: Site, way: Way) -> None:
    """Nothing runs; if workers have to declare something for scheduling, they ran before."""
    if way.declared_by_workers:
        site.start(*way.roles.values())
        site.stop()


def cancel(site: Site, way: Way) -> Answer:
    """With all offline; if that has no effect, with all running."""
    all_offline(site, way)
    _, gone = way.schedule("kept", POLLED), way.schedule("gone", POLLED)
    said = way.cancel(gone)
    site.start(*way.roles.values())
    if _only_kept(site):
        return YES, f"offline: it said {said}; only the other one ran"
    other = way.schedule("online", 2 * POLLED)
    pause(POLLED)
    told = way.cancel(other)
    pause(2 * POLLED)
    ran = site.times("online")
    seen = f"offline: it said {said}, and the job ran; online: it said {told}, and the job "
    return _outcome(not ran, f"{seen}{'ran' if ran else 'did not'}", ONLINE)


def _only_kept(site: Site) -> bool:
    assert site.wait_ran("kept"), "the job that was not cancelled did not run"
    pause(2)
    return not site.times("gone")


def _outcome(good: bool, seen: str, word: str = YES) -> Answer:
    return (word if good else NO), seen


def truth(site: Site, way: Way) -> Answer:
    """Too late, and a second before it is due."""
    site.start(*way.roles.values())
    over = way.schedule("over", 1)
    assert site.wait_ran("over")
    pause(2)
    after = way.cancel(over)
    due = time.time() + 2 * POLLED
    near = way.schedule("near", 2 * POLLED)
    pause_until(due - 1)
    before = way.cancel(near)
    pause_until(due + POLLED)
    ran = bool(site.times("near"))
    seen = (
        f"after it ran: {after}; a second before: {before}; then it {'ran' if ran else 'did not'}"
    )
    if before is None and after is None:
        return "says nothing", seen
    return _outcome(after is False and before is not ran, seen)


def reschedule(site: Site, way: Way) -> Answer:
    """Twice with all offline, the second time by the id from the first."""
    all_offline(site, way)
    first = way.schedule("moved", 3600)
    second = way.reschedule(first, 7200)
    third = way.reschedule(second, 3)
    if third != first:
        return "under a new id", f"{first}, then {second}, then {third}"
    site.start(*way.roles.values())
    ran = site.wait_ran("moved", timeout=30)
    return _outcome(ran and site.times("moved") == 1, f"one id; ran {site.times('moved')} times")


def listing(site: Site, way: Way) -> Answer:
    """With all offline; if that lists nothing, with all running."""
    all_offline(site, way)
    # A call may take long: the due time counts from some moment between its begin and its end.
    due = {}
    for label, delay in (("a", 1000), ("b", 2000)):
        begun = time.time()
        job_id = way.schedule(label, delay)
        due[job_id] = begun + delay - ROUNDED, time.time() + delay + ROUNDED
    if _all_listed(way, due):
        return YES, "offline: both, with their times"
    site.start(*way.roles.values())
    pause(POLLED)
    good = _all_listed(way, due)
    return _outcome(good, f"offline: not both; online: {'both' if good else 'not both'}", ONLINE)


def _all_listed(way: Way, due: dict[str, tuple[float, float]]) -> bool:
    found = way.waiting()
    return all(low <= found.get(each, 0) <= high for each, (low, high) in due.items())


def kill(site: Site, way: Way) -> Answer:
    """SIGKILL for all processes while a job waits, and new processes at once."""
    site.start(*way.roles.values())
    due = time.time() + POLLED
    way.schedule("held", POLLED)
    pause(POLLED / 2)
    site.kill()
    site.start(*way.roles.values())
    ready = max(due, time.time())
    if not site.wait_ran("held", timeout=ready + LONGEST - time.time()):
        return f"not within {LONGEST:.0f} s", "it did not run"
    late = site.ran[0][1] - ready
    seen = f"it ran {late:.1f} s after new processes were up, or after it was due"
    return (YES if late < AT_ONCE else f"{late:.0f} s later"), seen


def timeout(site: Site, way: Way) -> Answer:
    """Two workers, and a job that waits for longer than the broker's time-out."""
    site.start(*way.roles.values(), way.roles["worker"])
    due = time.time() + HELD
    way.schedule("long", HELD)
    ran = site.wait_ran("long", timeout=2 * HELD)
    pause_until(due + POLLED)
    times = site.times("long")
    seen = f"it ran {times} times; ended: {site.ended}"
    if not ran:
        return ("ends the workers" if site.ended else "did not run"), seen
    return (f"ran {times} times" if times > 1 else YES), seen


def crowd(site: Site, way: Way) -> Answer:
    """Two of each process, and twenty jobs."""
    site.start(*way.roles.values(), *way.roles.values())
    labels = [f"job-{number}" for number in range(20)]
    for number, label in enumerate(labels):
        way.schedule(label, POLLED + number / 10)
    assert site.wait_ran(*labels, timeout=60), "not all ran"
    pause(3)
    often = Counter(times for times in map(site.times, labels))
    twice = sum(count for times, count in often.items() if times > 1)
    return (f"{twice} of 20 ran twice" if twice else YES), f"times it ran -> jobs: {dict(often)}"


def key(site: Site, way: Way) -> Answer:
    """Two calls under one key, the second one later and with another argument."""
    all_offline(site, way)
    way.schedule_under_key("k", "first", POLLED)
    second_due = time.time() + 2 * POLLED
    way.schedule_under_key("k", "second", 2 * POLLED)
    site.start(*way.roles.values())
    pause_until(second_due + POLLED)
    ran = {label for label, _ in site.ran}
    word = {("first",): "the first call counts", ("second",): "the last call counts"}
    return word.get(tuple(ran), NO), f"of two calls ran: {', '.join(sorted(ran))}"


def tag(site: Site, way: Way) -> Answer:
    """Three of a tag and one of another: offline, then online, as in ``cancel``."""
    all_offline(site, way)
    for number in range(3):
        way.schedule_tagged("user-7", f"seven-{number}", POLLED)
    way.schedule_tagged("user-8", "kept", POLLED)
    way.cancel_tag("user-7")
    site.start(*way.roles.values())
    assert site.wait_ran("kept")
    pause(2)
    if not any(site.times(f"seven-{number}") for number in range(3)):
        return YES, "offline: none of the tag ran, the other one did"
    way.schedule_tagged("user-9", "nine", 2 * POLLED)
    pause(POLLED)
    way.cancel_tag("user-9")
    pause(2 * POLLED)
    good = not site.times("nine")
    return _outcome(
        good, f"offline: they ran; online: it {'did not run' if good else 'ran'}", ONLINE
    )


def process(site: Site, way: Way) -> Answer:
    """Workers alone; if nothing runs, with the other processes as well."""
    site.start(way.roles["worker"])
    way.schedule("job", 1)
    if site.wait_ran("job", timeout=2 * POLLED):
        return NO, "workers alone ran it"
    others = [name for name in way.roles if name != "worker"]
    site.start(*(way.roles[name] for name in others))
    assert site.wait_ran("job")
    return f"yes: {', '.join(others)}", "workers alone did not run it; with the others it ran"


def asked(probe, site: Site, way: Way) -> Answer:
    """The answer of a probe; a dash if the way has no call for it."""
    try:
        return probe(site, way)
    except NotOffered:
        return NONE, "it has no call for this"
