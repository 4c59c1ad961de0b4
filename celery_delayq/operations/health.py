"""Health: whether tasks are delivered in time, and if not, why.

A :class:`Sight`, read once, is what each quick :class:`Check` looks at, here and in leaves; a check
returns lines. ``health``, its command and the head of the page print them. The doctor prints them
too, beside those of its own slow checks.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

from ..core.clock import from_ms
from ..core.errors import InvalidOption, StoreDiffers, StoreError
from ..core.leaves import CHECKS, call
from ..core.servers.risks import ERROR, NOTE, OK, WARNING, Facts, Line, eviction, memory
from ..core.services import HasServices, Services
from ..core.store import Counts, Pause, emptied
from ..core.text import counted, lasting, plain
from .pauses import in_words, to_resume

MAX_OVERDUE = 60.0  # seconds
MAX_DEAD = 0
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
_AGREED = "all processes on this store agree on its layout, shards and broker"
_BEGAN_UNKNOWN = (
    "when the store began is unknown: no process has used it yet, or it is older than this release"
)
_NOT_HERE = "no scanner on this host, {}, is alive"


def _is_number(value: Any, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


@dataclass(frozen=True)
class Bounds:
    """What `health` allows.

    Attributes:
        overdue: How many seconds a task may be overdue.
        dead: How many tasks may be dead, and how many refused.
        paused: How many seconds a task may be due and paused.

    Raises:
        InvalidOption: one of them is invalid.
    """

    overdue: float = MAX_OVERDUE
    dead: int = MAX_DEAD
    paused: float = MAX_PAUSED

    def __post_init__(self) -> None:
        for option, seconds in (("max_overdue", self.overdue), ("max_paused", self.paused)):
            if not _is_number(seconds, int, float) or not 0 <= seconds < math.inf:
                raise InvalidOption(option, seconds, "a number of seconds from 0")
        if not _is_number(self.dead, int) or self.dead < 0:
            raise InvalidOption("max_dead", self.dead, "a whole number of tasks from 0")


@dataclass(frozen=True)
class Sight:
    """What the quick checks look at.

    Attributes:
        services: The app's services.
        counts: The store's counts.
        pauses: Its pauses.
        servers: What each Redis of it says of itself; none, if the doctor looks.
        other_broker: The broker of its scanners, if the app has another one.
        bounds: What is allowed.
        in_full: Whether the doctor looks, who has time to name hosts and causes.
    """

    services: Services
    counts: Counts
    pauses: Sequence[Pause] = ()
    servers: Sequence[Facts] = ()
    other_broker: str = ""
    bounds: Bounds = Bounds()
    in_full: bool = False


Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Check(Generic[Seen]):
    """One check; a quick one is seen in a :class:`Sight`.

    Attributes:
        name: The name of its lines.
        about: What it looks at.
        look: Looks at it, and returns its lines.
        runbook: The section of the runbook about what it finds; empty: none.
        advice: The advice that the doctor adds to a finding without one.
    """

    name: str
    about: str
    look: Callable[[Seen], Iterable[Line]]
    runbook: str = ""
    advice: str = ""


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
    found = lines(delayq.services, Bounds(max_overdue, max_dead, max_paused), here=here)
    return [line.sentence for line in found if line.is_problem]


def restarts_here(delayq: HasServices) -> dict[str, int]:
    """How often the thread of each scanner on this host was started again, if ever."""
    scanners, host = delayq.services.entries.scanners(), socket.gethostname()
    return {
        scanner.name: scanner.restarts
        for scanner in scanners
        if scanner.host == host and scanner.restarts
    }


def lines(
    services: Services, bounds: Bounds = Bounds(), *, here: bool = False, in_full: bool = False
) -> list[Line]:
    """Return the lines of all quick checks; if the store cannot be read, only that one.

    Args:
        services: The app's services.
        bounds: What is allowed.
        here: Check only that a scanner on this host is alive.
        in_full: Whether the doctor looks.

    Raises:
        InvalidOption: *here* is invalid.
        InvalidSetting: the app's configuration is invalid.
    """
    if not isinstance(here, bool):
        raise InvalidOption("here", here, "true or false")
    entries = services.entries
    try:
        other_broker = entries.check_membership()
        if here:
            return [_here(services)]
        counts, pauses = entries.counts(), entries.pauses()
        nodes = {
            shard.scripts.connection.node: shard.scripts.connection for shard in entries.shards
        }
        # The doctor asks each Redis more.
        servers = [] if in_full else [Facts.of_info(node) for node in nodes.values()]
    except StoreDiffers as error:
        return [Line.of("agreement", ERROR, str(error))]
    except StoreError as error:
        why = f"the store {services.endpoint.url} cannot be read: {plain(error.why)}"
        return [Line("store", ERROR, why)]
    return seen(Sight(services, counts, pauses, servers, other_broker, bounds, in_full))


def seen(sight: Sight) -> list[Line]:
    """Return the lines of all quick checks."""
    return [line for check in quick() for line in check.look(sight)]


def quick() -> list[Check[Sight]]:
    """Return the quick checks, in the order of their lines."""
    return [*_DELIVERY, *chain.from_iterable(call(CHECKS)), *_HINDRANCES]


def no_delivery(counts: Counts) -> str:
    """Return why no scanner delivers anything; empty if one does."""
    if counts.resharding:
        return _RESHARDING.format(*counts.resharding)
    return "" if counts.scanners else NO_SCANNER


def beginning(counts: Counts) -> Line:
    """Check that no scanner is older than the store, which begins anew when it is emptied."""
    if wrong := emptied(counts.began_ms, counts.scanner_ms, counts.now_ms):
        return Line.of("beginning", ERROR, wrong)
    if counts.began_ms is None:
        return Line("beginning", OK, _BEGAN_UNKNOWN)
    age = lasting((counts.now_ms - counts.began_ms) / 1000)
    return Line("beginning", OK, f"the store began {age} ago")


def _here(services: Services) -> Line:
    host = socket.gethostname()
    if any(scanner.host == host for scanner in services.entries.scanners()):
        return Line("scanners", OK, "")
    return Line("scanners", ERROR, _NOT_HERE.format(host))


def _agreement(sight: Sight) -> Iterator[Line]:
    if not sight.other_broker or not sight.counts.scanners:
        yield Line("agreement", OK, _AGREED)
        return
    ours = sight.services.broker
    means = _MIXED if sight.services.store_is_broker else _TO_THEIRS
    if not sight.other_broker.startswith(f"{ours.kind} on "):
        means = _REFUSED
    wrong = _OTHER_BROKER.format(sight.other_broker, ours.kind, ours.hosts, means)
    yield Line.of("agreement", ERROR, wrong)


def _scanners(sight: Sight) -> Iterator[Line]:
    if wrong := no_delivery(sight.counts):
        yield Line.of("scanners", ERROR, wrong)
        return
    alive = f"{sight.counts.scanners} alive"
    if sight.in_full:
        hosts = sorted({scanner.host for scanner in sight.services.entries.scanners()})
        alive += f", on {', '.join(map(plain, hosts))}"
    yield Line("scanners", OK, alive)


def _overdue(sight: Sight) -> Iterator[Line]:
    counts, most = sight.counts, sight.bounds.overdue
    due_ms = counts.oldest_overdue_ms
    late = 0 if due_ms is None else (counts.now_ms - due_ms) / 1000
    if due_ms is not None and late > most:
        due = f"{from_ms(due_ms):%Y-%m-%d %H:%M:%S} UTC"
        found = f"a task that was due at {due} is overdue by {lasting(late)}"
        yield Line("overdue", ERROR, f"{found}; {most:g} s are allowed")
    else:
        bound = f"none by more than {most:g} s, of {counts.scheduled:,} waiting"
        yield Line("overdue", OK, bound)


def _refused(sight: Sight) -> Iterator[Line]:
    count, most = sight.counts.refused, sight.bounds.dead
    if count > most:
        found = f"{_are(count)} refused by a queue, and tried again; {most} are allowed"
        yield Line("refused", ERROR, found)
    else:
        yield Line("refused", OK, "none")


def _dead(sight: Sight) -> Iterator[Line]:
    count, most = sight.counts.dead, sight.bounds.dead
    if count > most:
        yield Line("dead", WARNING, f"{_are(count)} dead; {most} are allowed")
    else:
        yield Line("dead", OK, "none")


def _are(count: int) -> str:
    return f"{counted(count)} {'is' if count == 1 else 'are'}"


def _pauses(sight: Sight) -> Iterator[Line]:
    """Tell each pause, and each lane that comes back at a rate; wrong if a task waits too long."""
    now_ms, bounds = sight.counts.now_ms, sight.bounds
    told = [(pause, sentence) for pause in sight.pauses if (sentence := in_words(pause, now_ms))]
    for pause, sentence in told:
        bound = ""
        if pause.resumed:
            level = WARNING if pause.seconds_left > bounds.overdue else NOTE
            advice = f"to resume at once: {to_resume(pause)}"
        else:
            level = ERROR if pause.seconds_held(now_ms) > bounds.paused else NOTE
            bound = f", and {bounds.paused:g} s are allowed" * (level == ERROR)
            advice = f"to resume: {to_resume(pause)}"
        yield Line("pauses", level, sentence + bound, advice)
    if not told:
        yield Line("pauses", OK, "nothing is paused")


def _room(sight: Sight) -> Iterator[Line]:
    for server in sight.servers:
        # A policy without a maxmemory is the doctor's to warn of: it deletes nothing.
        yield from (line for line in eviction(server) if line.level == ERROR)
        yield from memory(server)


_DELIVERY = (
    Check[Sight]("agreement", "the layout, shards and broker of all processes", _agreement),
    Check[Sight](
        "beginning", "whether the store was emptied",
        lambda sight: [beginning(sight.counts)], "delayqemptied",
    ),
    Check[Sight]("scanners", "whether one is alive", _scanners, "delayqnoscanner"),
    Check[Sight](
        "overdue", "whether tasks are delivered in time", _overdue, "delayqoverdue",
        "celery -A proj delayq list --overdue shows them; check a worker's log",
    ),
    Check[Sight](
        "refused", "whether queues take their tasks", _refused, "delayqrefused",
        "celery -A proj delayq list --overdue says why; check whether their queues exist, are "
        "full, or refuse this user; for a canvas, whether its result backend answers",
    ),
    Check[Sight](
        "dead", "tasks that cannot be delivered", _dead, "delayqdead",
        "celery -A proj delayq list --dead says why; retry or remove them",
    ),
)  # fmt: skip
_HINDRANCES = (
    Check[Sight]("pauses", "pauses, and tasks that come back at a rate", _pauses, "delayqpaused"),
    Check[Sight](
        "memory", "whether Redis has room, and deletes no waiting tasks to make some",
        _room, "redis-is-full-what-now",
    ),
)  # fmt: skip
