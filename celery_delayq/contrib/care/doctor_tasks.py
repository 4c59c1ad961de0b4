"""Checks whether tasks are delivered, by the checks of `health`, and what is paused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timezone
from shlex import quote

from ...core.logs import counted, lasting, plain
from ...core.servers.risks import ERROR, OK, WARNING, Line
from ...core.services import Services
from ...core.store import Pause
from ...core.store.overview import OVERDUE
from ...operations.health import MAX_OVERDUE, MAX_PAUSED, judged
from .. import rule_store

SHOWN_RULES = 3

# The advice for each fault that `health` finds, if its sentence has none.
_ADVICE = {
    "store": "check the rights of its Redis user, and Redis's log",
    "overdue": "celery -A proj delayq list --overdue shows them; check a worker's log",
    "refused": "celery -A proj delayq list --overdue says why; check whether their queues exist, "
    "are full, or refuse this user; for a canvas, whether its result backend answers",
    "dead": "celery -A proj delayq list --dead says why; retry or remove them",
}
# The doctor has questions of its own about these.
_ELSEWHERE = ("memory", "pauses", "rates")


def health(services: Services) -> Iterator[Line]:
    """Yield a line for each check of `health`."""
    for check in judged(services):
        if check.about in _ELSEWHERE:
            continue
        about, found, advice = check.about, check.wrong, _ADVICE.get(check.about, "")
        if found and about == "rules":
            found += _troubled(services)
        if found and not advice:
            found, _, advice = found.partition("; ")
        if found:
            yield Line(about, WARNING if about == "dead" else ERROR, found, advice)
        elif about == "scanners":
            hosts = sorted({scanner.host for scanner in services.entries.scanners()})
            yield Line(about, OK, f"{check.well}, on {', '.join(map(plain, hosts))}")
        else:
            yield Line(about, OK, check.well)


def _troubled(services: Services) -> str:
    """Return the names of some rules whose next run cannot be made, and why."""
    rules = rule_store.troubled(services.entries, SHOWN_RULES)[:SHOWN_RULES]
    return "".join(f"; {plain(rule.name)}: {plain(rule.trouble)}" for rule in rules)


def pauses(services: Services) -> Iterator[Line]:
    """Yield the pauses, and what resumes at a rate; warnings if due tasks wait for that."""
    found, now_ms = services.entries.pauses(), services.entries.counts().now_ms
    held = [pause for pause in found if not pause.resumed]
    back = [pause for pause in found if pause.seconds_left]
    if held:
        yield _held(held, now_ms)
    for pause in back:
        yield _back(pause)
    if not held and not back:
        yield Line("pauses", OK, "nothing is paused")


def _since(pause: Pause) -> str:
    since = pause.since.astimezone(timezone.utc)
    return f"{plain(pause.what)} is paused since {since:%Y-%m-%d %H:%M} UTC"


def _held(held: list[Pause], now_ms: int) -> Line:
    sentence = "; ".join(map(_since, held))
    due, is_exact = sum(pause.parked for pause in held), all(pause.is_exact for pause in held)
    if not due:
        of = "" if is_exact else f" among the {OVERDUE} that were looked at"
        return Line("pauses", OK, f"{sentence}: no paused task is due{of}")
    advice = f"to resume: {', '.join(map(_resume, held))}"
    longest = max(pause.seconds_held(now_ms) for pause in held)
    tasks = "at least " * (not is_exact) + counted(due)
    found = f"{sentence}: {tasks} due and not delivered, the first for {lasting(longest)}"
    return Line("pauses", ERROR if longest > MAX_PAUSED else WARNING, found, advice)


def _back(pause: Pause) -> Line:
    seconds = pause.seconds_left
    sentence = f"{plain(pause.what)} comes back at {pause.rate:g} a second:"
    return Line(
        "pauses", WARNING if seconds > MAX_OVERDUE else OK,
        f"{sentence} {counted(pause.parked)} left, the last one's turn is in {lasting(seconds)}",
        f"to resume at once: {_resume(pause)}" if seconds > MAX_OVERDUE else "",
    )  # fmt: skip


def _resume(pause: Pause) -> str:
    for option, name in (("--queue", pause.queue), ("--task", pause.task)):
        if name is not None:
            return f"celery -A proj delayq resume {option} {quote(plain(name))}"
    return "celery -A proj delayq resume"
