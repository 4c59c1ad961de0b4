"""Health: whether tasks are delivered in time, and if not, why."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..core.clock import from_ms
from ..core.errors import InvalidOption, StoreDiffers, StoreError
from ..core.leaves import LEAVES, leaf
from ..core.servers.risks import ERROR, OK, Facts, eviction, memory
from ..core.services import HasServices, Services
from ..core.store import Counts, LiveScanner, Pause, emptied
from ..core.text import counted, lasting, plain
from .pauses import in_words, to_resume

MAX_OVERDUE = 60.0  # seconds
MAX_DEAD = 0
LOOK_EVERY = 30.0  # seconds; so often each process looks at the rules
MAX_PAUSED = 600.0  # seconds, as the alert DelayqPaused has it

NO_SCANNER = (
    "no scanner is alive: no tasks are delivered; start a worker, or: celery -A proj delayq scan"
)
_RESHARDING = (
    "the store is being resharded from {0} to {1} shards: no tasks are delivered until that is "
    "done; if no process does it any more, run: celery -A proj delayq reshard {1}, or: reshard "
    "--abort"
)
_OTHER_BROKER = (
    "this store's scanners have the broker {}, this app has {} on {}: {}; give each app a "
    "delayq_prefix of its own, or both the same broker_url"
)
_REFUSED = "this app's calls that change the store are refused"
_TO_THEIRS = "if these are two brokers, tasks of this app go to theirs"
# On the direct path a script pushes to the lists of the store's own Redis, for any scanner.
_MIXED = "tasks of this app reach its queues, but both apps list and cancel each other's tasks"
_RULE_LATE = (
    "a recurring rule should have written its next run {} ago: no process writes the runs of "
    "rules, or none that reads the format of this one; start a worker of your newest release that "
    "has celery_delayq[rules]"
)
_TROUBLED = (
    "the next run of {} cannot be made; celery -A proj delayq rules list says why; mend, pause or "
    "remove them"
)
_AGREED = "all processes on this store agree on its layout, shards and broker"
_BEGAN_UNKNOWN = (
    "when the store began is unknown: no process has used it yet, or it is older than this release"
)
_NOT_HERE = "no scanner on this host, {}, is alive"


@dataclass(frozen=True)
class Judged:
    """The result of one check.

    The checks are ``store``, ``agreement``, ``beginning``, ``scanners``, ``overdue``, ``refused``,
    ``dead``, ``rules`` (if there are any), ``pauses``, ``rates`` (of tasks that come back),
    ``eviction`` and ``memory``.

    Attributes:
        about: The name of the check.
        wrong: The problem; empty if there is none.
        well: The text to show if there is no problem.
        note: A sentence to show at once although it is no problem: what an operator paused, or
            rules whose task no worker knows.
    """

    about: str
    wrong: str
    well: str = ""
    note: str = ""


def health(
    delayq: HasServices,
    *,
    max_overdue: float = MAX_OVERDUE,
    max_dead: int = MAX_DEAD,
    max_paused: float = MAX_PAUSED,
    here: bool = False,
) -> list[str]:
    """The problems, one sentence each; an empty list if tasks are delivered in time.

    It reports a problem if:

    - no scanner is alive, or the scanners use another broker than this app, or other hosts of it;
    - the store is being resharded;
    - the store began after one of its scanners, as its Redis was emptied meanwhile;
    - a task has been overdue for too long, or too many tasks are dead or refused;
    - the next run of a recurring rule cannot be made, or was not written in time;
    - a task has been due and paused for too long, so the pause may be forgotten;
    - resumed tasks are delivered so slowly that the last one waits too long;
    - the store's Redis is full or nearly full, or deletes waiting tasks when it is full;
    - the store cannot be read, or other processes use it with different settings.

    A paused task is not overdue; :meth:`pauses` has the pauses that are no problem yet. The check
    makes four calls to the store, five if there are rules, and none to the broker.

    Args:
        max_overdue: How many seconds a task may be overdue, or resumed tasks may take to be
            delivered; 0 or more.
        max_dead: How many tasks may be dead, and how many refused; 0 or more.
        max_paused: How many seconds a task may be due and paused; 0 or more.
        here: Check only that a scanner on this host is alive: for the probe of a worker's
            container.

    Raises:
        InvalidOption: *max_overdue*, *max_dead*, *max_paused* or *here* is invalid.
        InvalidSetting: the app's configuration is invalid.
    """
    all_of_it = judged(delayq.services, max_overdue, max_dead, max_paused, here)
    return [check.wrong for check in all_of_it if check.wrong]


def restarts_here(delayq: HasServices) -> dict[str, int]:
    """How often the thread of each scanner on this host was started again, if ever."""
    scanners, host = delayq.services.entries.scanners(), socket.gethostname()
    return {
        scanner.name: scanner.restarts
        for scanner in scanners
        if scanner.host == host and scanner.restarts
    }


def judged(
    services: Services,
    max_overdue: float = MAX_OVERDUE,
    max_dead: int = MAX_DEAD,
    max_paused: float = MAX_PAUSED,
    here: bool = False,
) -> list[Judged]:
    """Return all results; if the store cannot be read, only that one.

    Arguments and errors are those of :func:`health`.
    """
    _check(max_overdue, max_dead, max_paused, here)
    entries = services.entries
    try:
        other_broker = entries.check_membership()
        if here:
            return [_here(entries.scanners())]
        counts, pauses = entries.counts(), entries.pauses()
        nodes = {
            shard.scripts.connection.node: shard.scripts.connection for shard in entries.shards
        }
        servers = [Facts.of_info(node) for node in nodes.values()]
    except StoreDiffers as error:
        return [Judged("agreement", str(error))]
    except StoreError as error:
        why = f"the store {services.endpoint.url} cannot be read: {plain(error.why)}"
        return [Judged("store", why)]
    agreement = ""
    if other_broker and counts.scanners:
        ours, means = services.broker, _MIXED if services.store_is_broker else _TO_THEIRS
        if not other_broker.startswith(f"{ours.kind} on "):
            means = _REFUSED
        agreement = _OTHER_BROKER.format(other_broker, ours.kind, ours.hosts, means)
    return [
        Judged("agreement", agreement, _AGREED),
        beginning(counts),
        *_judged(counts, max_overdue, max_dead),
        *_rules(services, counts, max_overdue),
        *_pauses(pauses, counts.now_ms, max_paused, max_overdue),
        *(check for server in servers for check in _redis(server)),
    ]


def no_delivery(counts: Counts) -> str:
    """Return why no scanner delivers anything; empty if one does."""
    if counts.resharding:
        return _RESHARDING.format(*counts.resharding)
    return "" if counts.scanners else NO_SCANNER


def _here(scanners: Iterable[LiveScanner]) -> Judged:
    host = socket.gethostname()
    is_here = any(scanner.host == host for scanner in scanners)
    return Judged("scanners", "" if is_here else _NOT_HERE.format(host))


def beginning(counts: Counts) -> Judged:
    """Check that no scanner is older than the store, which begins anew when it is emptied."""
    wrong = emptied(counts.began_ms, counts.scanner_ms, counts.now_ms)
    if counts.began_ms is None:
        return Judged("beginning", "", _BEGAN_UNKNOWN)
    age = lasting((counts.now_ms - counts.began_ms) / 1000)
    return Judged("beginning", wrong, f"the store began {age} ago")


def _judged(counts: Counts, max_overdue: float, max_dead: int) -> Iterator[Judged]:
    yield Judged("scanners", no_delivery(counts), f"{counts.scanners} alive")
    due_ms, overdue = counts.oldest_overdue_ms, ""
    late = 0 if due_ms is None else (counts.now_ms - due_ms) / 1000
    if due_ms is not None and late > max_overdue:
        overdue = (
            f"a task that was due at {from_ms(due_ms):%Y-%m-%d %H:%M:%S} UTC is overdue by "
            f"{lasting(late)}; {max_overdue:g} s are allowed"
        )
    bound = f"none by more than {max_overdue:g} s, of {counts.scheduled:,} waiting"
    yield Judged("overdue", overdue, bound)
    for about, count, means in (
        ("refused", counts.refused, "refused by a queue, and tried again"),
        ("dead", counts.dead, "dead"),
    ):
        what = f"{counted(count)} {'is' if count == 1 else 'are'} {means}"
        yield Judged(about, f"{what}; {max_dead} are allowed" if count > max_dead else "", "none")


def _rules(services: Services, counts: Counts, max_overdue: float) -> Iterator[Judged]:
    """Check that the next run of each rule is written; a process looks each half minute.

    Name those whose task no worker knows: other programs may run it.
    """
    look_ms, wrong = counts.rule_look_ms, ""
    late = 0 if look_ms is None else (counts.now_ms - look_ms) / 1000
    if late > max_overdue + LOOK_EVERY:
        wrong = _RULE_LATE.format(lasting(late))
    elif counts.troubled_rules:
        wrong = _TROUBLED.format(counted(counts.troubled_rules, "rule"))
    if counts.rules:
        well = f"the next runs of {counted(counts.rules, 'rule')} are written"
        note = leaf("rules").unknown_tasks(services) if "rules" in LEAVES else ""
        yield Judged("rules", wrong, well, note)


def _pauses(
    pauses: Iterable[Pause], now_ms: int, max_paused: float, max_overdue: float
) -> Iterator[Judged]:
    """Tell each pause, and each lane that comes back at a rate; wrong if a task waits too long."""
    told = [(pause, sentence) for pause in pauses if (sentence := in_words(pause, now_ms))]
    for pause, sentence in told:
        if pause.resumed:
            about, is_wrong, advice = "rates", pause.seconds_left > max_overdue, "to resume at once"
        else:
            about, is_wrong, advice = "pauses", pause.seconds_held(now_ms) > max_paused, "to resume"
        bound = f", and {max_paused:g} s are allowed" * (is_wrong and not pause.resumed)
        said = f"{sentence}{bound}; {advice}: {to_resume(pause)}"
        yield Judged(about, said) if is_wrong else Judged(about, "", note=said)
    if not told:
        yield Judged("pauses", "", "nothing is paused")


def _redis(server: Facts) -> Iterator[Judged]:
    """Check that the store's Redis has room, and deletes no task to make some."""
    for line in (*eviction(server), *memory(server)):
        # A policy without a maxmemory is the doctor's to warn of: it deletes nothing.
        is_wrong = line.level == ERROR or (line.name == "memory" and line.level != OK)
        yield Judged(line.name, f"{line.found}; {line.advice}" if is_wrong else "", line.found)


def _check(max_overdue: Any, max_dead: Any, max_paused: Any, here: Any) -> None:
    for option, seconds in (("max_overdue", max_overdue), ("max_paused", max_paused)):
        if not _is_number(seconds, int, float) or not 0 <= seconds < math.inf:
            raise InvalidOption(option, seconds, "a number of seconds from 0")
    if not _is_number(max_dead, int) or max_dead < 0:
        raise InvalidOption("max_dead", max_dead, "a whole number of tasks from 0")
    if not isinstance(here, bool):
        raise InvalidOption("here", here, "true or false")


def _is_number(value: Any, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)
