"""Health: whether tasks are delivered in time, and if not, why.

    Check --look--> lines: ``health``, its command, the page's head and the doctor print them
      |-- gauges -> the numbers that it compares, read from the same Sight or Status: metrics
      |-- alerts -> what Prometheus says if such a number passes the bound: ``alerts.yml``
      '-- about, wrong, bounds, runbook: the tables of the documents

A :class:`Sight`, read once, is what each quick check looks at, here and in leaves. The doctor adds
slow checks of its own.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

from ..core.clock import from_ms
from ..core.errors import InvalidOption, StoreDiffers, StoreError
from ..core.leaves import CHECKS, call
from ..core.servers.risks import ERROR, NOTE, OK, WARNING, Facts, Line, eviction, memory
from ..core.services import HasServices, Services
from ..core.store import Counts, Pause, emptied
from ..core.store.entries import Entries
from ..core.text import counted, lasting, plain
from ..core.threads import gather
from .pauses import in_words, to_resume

PREFIX = "celery_delayq_"  # of the name of each metric
MAX_OVERDUE = 60.0  # seconds
MAX_DEAD = 0
MAX_PAUSED = 600.0  # seconds
SLOWLY = 600.0  # seconds that resumed tasks may take before the alert; a rate is a decision

NO_SCANNER = Line(
    "scanners", ERROR, "no scanner is alive: no tasks are delivered",
    "start a worker, or: celery -A proj delayq scan",
)  # fmt: skip
_RESHARDING = Line(
    "scanners", ERROR,
    "the store is being resharded from {0} to {1} shards: no tasks are delivered until that is "
    "done",
    "if no process does it any more, run: celery -A proj delayq reshard {1}, or: reshard --abort",
)  # fmt: skip
_OTHER_BROKER = Line(
    "agreement", ERROR, "this store's scanners have the broker {}, this app has {} on {}: {}",
    "give each app a delayq_prefix of its own, or both the same broker_url",
)  # fmt: skip
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


class Numbers(Protocol):
    """What gauges are read from: a :class:`Sight`, or a status."""

    @property
    def counts(self) -> Counts:
        """The store's counts."""

    @property
    def pauses(self) -> Sequence[Pause]:
        """Its pauses."""


@dataclass(frozen=True)
class Gauge:
    """A number that a check looks at.

    Attributes:
        name: Its name, without :data:`PREFIX`.
        says: The meaning of its value.
        read: Returns its value; ``None``: unknown.
    """

    name: str
    says: str
    read: Callable[[Numbers], float | None]


@dataclass(frozen=True)
class Alert:
    """A rule of ``alerts.yml``; the runbook has a section of its name.

    Attributes:
        name: Its name.
        when: The expression.
        summary: What is wrong.
        description: What it means, and what to do.
        lasts: For how long the expression has to hold.
        severity: ``critical`` or ``warning``.
        line: The doctor's line that says more, if the alert is not a check's own.
    """

    name: str
    when: str
    summary: str
    description: str
    lasts: str = ""
    severity: str = "warning"
    line: str = ""

    @property
    def section(self) -> str:
        """The part behind ``#`` in links to its section of the runbook."""
        return self.name.lower()


def most(metric: str) -> str:
    """Return the expression of a gauge; processes that read one store at one time may differ."""
    return f"max by (job) ({PREFIX}{metric})"


Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Check(Generic[Seen]):
    """One check; a quick one is seen in a :class:`Sight`.

    Attributes:
        name: The name of its lines.
        about: What it looks at.
        look: Looks at it, and returns its lines.
        wrong: What is wrong if it finds a problem.
        bounds: The :class:`Bounds` that say how much is allowed.
        runbook: The section of the runbook about what it finds; empty: its first alert's, if any.
        advice: The advice that the doctor adds to a finding without one.
        gauges: The numbers that it looks at.
        alerts: The alerts on these.
    """

    name: str
    about: str
    look: Callable[[Seen], Iterable[Line]]
    wrong: str = ""
    bounds: tuple[str, ...] = ()
    runbook: str = ""
    advice: str = ""
    gauges: tuple[Gauge, ...] = ()
    alerts: tuple[Alert, ...] = ()

    @property
    def section(self) -> str:
        """The section of the runbook; empty: none."""
        return self.runbook or next((alert.section for alert in self.alerts), "")


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

    - the scanners have another broker than this app or reach it on other hosts, or other processes
      use the store with different settings;
    - the store began after one of its scanners, as its Redis was emptied meanwhile;
    - no scanner is alive, or the store is being resharded;
    - a task has been overdue for too long;
    - too many tasks are refused;
    - too many tasks are dead;
    - waiting tasks differ from the rows of the last reconcile, or that ended early;
    - the next run of a recurring rule cannot be made, or was not written in time;
    - workers did not know a task, or could not read it;
    - a task has been due and paused for too long, or resumed tasks are delivered so slowly that the
      last one waits too long;
    - the store's Redis is full or nearly full, or deletes waiting tasks when it is full;
    - the store cannot be read.

    A paused task is not overdue; :meth:`pauses` has the pauses that are no problem yet. The check
    makes four calls to the store, five if there are rules, and some more if workers did not know
    tasks, to read their names. It makes none to the broker.

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
        if here:
            entries.check_membership()
            return [_here(services)]
        other_broker, counts, pauses, servers = gather(
            entries.check_membership,
            entries.counts,
            entries.pauses,
            # The doctor asks each Redis more.
            (list) if in_full else partial(_servers, entries),
        )
    except StoreDiffers as error:
        return [Line("agreement", ERROR, error.found, error.advice)]
    except StoreError as error:
        why = f"the store {services.endpoint.url} cannot be read: {plain(error.why)}"
        return [Line("store", ERROR, why)]
    return seen(Sight(services, counts, pauses, servers, other_broker, bounds, in_full))


def _servers(entries: Entries) -> list[Facts]:
    shards = [shard.scripts.connection for shard in entries.shards]
    nodes = {connection.node: connection for connection in shards}
    return gather(*(partial(Facts.of_info, node) for node in nodes.values()))


def seen(sight: Sight) -> list[Line]:
    """Return the lines of all quick checks."""
    return [line for check in quick() for line in check.look(sight)]


def quick() -> list[Check[Sight]]:
    """Return the quick checks, in the order of their lines."""
    return [*_DELIVERY, *chain.from_iterable(call(CHECKS)), *_HINDRANCES]


def no_delivery(counts: Counts) -> Line | None:
    """Return why no scanner delivers anything; ``None`` if one does."""
    if counts.resharding:
        return _RESHARDING.filled(*counts.resharding)
    return None if counts.scanners else NO_SCANNER


def beginning(counts: Counts) -> Line:
    """Check that no scanner is older than the store, which begins anew when it is emptied."""
    if wrong := emptied(counts.began_ms, counts.scanner_ms, counts.now_ms):
        return wrong
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
    yield _OTHER_BROKER.filled(sight.other_broker, ours.kind, ours.hosts, means)


def _scanners(sight: Sight) -> Iterator[Line]:
    if wrong := no_delivery(sight.counts):
        yield wrong
        return
    alive = f"{sight.counts.scanners} alive"
    if sight.in_full:
        hosts = sorted({scanner.host for scanner in sight.services.entries.scanners()})
        alive += f", on {', '.join(map(plain, hosts))}"
    yield Line("scanners", OK, alive)


def between(later_ms: int | None, earlier_ms: int | None) -> float | None:
    """Return the seconds between two times; ``None`` if one of them is unknown."""
    if later_ms is None or earlier_ms is None:
        return None
    return (later_ms - earlier_ms) / 1000


def _overdue_for(seen: Numbers) -> float:
    return between(seen.counts.now_ms, seen.counts.oldest_overdue_ms) or 0


def _overdue(sight: Sight) -> Iterator[Line]:
    due_ms, late = sight.counts.oldest_overdue_ms, _overdue_for(sight)
    allowed = sight.bounds.overdue
    if due_ms is not None and late > allowed:
        due = f"{from_ms(due_ms):%Y-%m-%d %H:%M:%S} UTC"
        found = f"a task that was due at {due} is overdue by {lasting(late)}"
        yield Line("overdue", ERROR, f"{found}; {allowed:g} s are allowed")
    else:
        bound = f"none by more than {allowed:g} s, of {sight.counts.scheduled:,} waiting"
        yield Line("overdue", OK, bound)


def _refused(sight: Sight) -> Iterator[Line]:
    count, allowed = sight.counts.refused, sight.bounds.dead
    if count > allowed:
        found = f"{_are(count)} refused by a queue, and tried again; {allowed} are allowed"
        yield Line("refused", ERROR, found)
    else:
        yield Line("refused", OK, "none")


def _dead(sight: Sight) -> Iterator[Line]:
    count, allowed = sight.counts.dead, sight.bounds.dead
    if count > allowed:
        yield Line("dead", WARNING, f"{_are(count)} dead; {allowed} are allowed")
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
    Check[Sight](
        "agreement", "the layout, shards and broker of all processes", _agreement,
        "the scanners have another broker than this app or reach it on other hosts, or other "
        "processes use the store with different settings",
    ),
    Check[Sight](
        "beginning", "whether the store was emptied", lambda sight: [beginning(sight.counts)],
        "the store began after one of its scanners, as its Redis was emptied meanwhile",
        gauges=(
            Gauge(
                "store_age_seconds",
                "since the store began, which it does anew when its Redis is emptied; of several "
                "shards, since the last one did; absent if unknown",
                lambda seen: between(seen.counts.now_ms, seen.counts.began_ms),
            ),
            Gauge(
                "scanner_age_seconds",
                "since the first of the live scanners joined the store, or that shard; absent if "
                "unknown",
                lambda seen: between(seen.counts.now_ms, seen.counts.scanner_ms),
            ),
        ),
        alerts=(
            Alert(
                "DelayqEmptied",
                f"{most(f'scanner_age_seconds - {PREFIX}store_age_seconds')} > 0",
                "The store of scheduled tasks was emptied while scanners were at work.",
                "Its Redis was flushed, restarted without its data, or replaced by an empty one; "
                "tasks that waited before are gone. It ends when all scanners have restarted.",
                severity="critical",
            ),
        ),
    ),
    Check[Sight](
        "scanners", "whether one is alive", _scanners,
        "no scanner is alive, or the store is being resharded",
        gauges=(
            Gauge("scanners", "scanners that are alive", lambda seen: seen.counts.scanners),
        ),
        alerts=(
            Alert(
                "DelayqNoScanner", f"{most('scanners')} == 0",
                "No scanner is alive, so no scheduled task is delivered.",
                "Start a worker of the app, or `celery -A APP delayq scan`. Overdue tasks are "
                "delivered as soon as one is up.",
                "1m", "critical",
            ),
        ),
    ),
    Check[Sight](
        "overdue", "whether tasks are delivered in time", _overdue,
        "a task has been overdue for too long", ("overdue",),
        advice="celery -A proj delayq list --overdue shows them; check a worker's log",
        gauges=(
            Gauge(
                "overdue_tasks", "waiting tasks past their due time",
                lambda seen: seen.counts.overdue,
            ),
            Gauge(
                "oldest_overdue_seconds", "how long the oldest of them is overdue, or 0",
                _overdue_for,
            ),
        ),
        alerts=(
            Alert(
                "DelayqOverdue", f"{most('oldest_overdue_seconds')} > {MAX_OVERDUE:g}",
                "A scheduled task is overdue by {{ $value | humanizeDuration }}.",
                "Scanners are down, behind, or cannot reach the broker; or the task was refused. "
                "Paused tasks do not count.",
                "2m",
            ),
        ),
    ),
    Check[Sight](
        "refused", "whether queues take their tasks", _refused,
        "too many tasks are refused", ("dead",),
        advice="celery -A proj delayq list --overdue says why; check whether their queues exist, "
        "are full, or refuse this user; for a canvas, whether its result backend answers",
        gauges=(
            Gauge(
                "refused_tasks", "tasks that were refused and wait for their next attempt",
                lambda seen: seen.counts.refused,
            ),
        ),
        alerts=(
            Alert(
                "DelayqRefused", f"{most('refused_tasks')} > {MAX_DEAD}",
                "Tasks are refused by their queue or broker, and tried again.",
                "A queue is missing or full, or the scanner may not write to it; its log shows "
                "why. After eight refusals a task is dead, unless only a right is missing.",
                "1m",
            ),
        ),
    ),
    Check[Sight](
        "dead", "tasks that cannot be delivered", _dead, "too many tasks are dead", ("dead",),
        advice="celery -A proj delayq list --dead says why; retry or remove them",
        gauges=(
            Gauge(
                "dead_tasks", "tasks that are kept but not tried again",
                lambda seen: seen.counts.dead,
            ),
        ),
        alerts=(
            Alert(
                "DelayqDead", f"{most('dead_tasks')} > {MAX_DEAD}",
                "{{ $value }} tasks are dead: they cannot be delivered, and are kept.",
                "`celery -A APP delayq show ID` shows why; `delayq retry` and `delayq remove` with "
                "--state dead change all of them.",
            ),
        ),
    ),
)  # fmt: skip
_HINDRANCES = (
    Check[Sight](
        "pauses", "pauses, and tasks that come back at a rate", _pauses,
        "a task has been due and paused for too long, or resumed tasks are delivered so slowly "
        "that the last one waits too long",
        ("paused", "overdue"),
        gauges=(
            Gauge(
                "paused_tasks",
                "paused tasks that are due; at least, until a scanner has met them all",
                lambda seen: seen.counts.paused,
            ),
            Gauge(
                "oldest_paused_seconds", "how long the first of them is due and paused, or 0",
                lambda seen: max(
                    (pause.seconds_held(seen.counts.now_ms) for pause in seen.pauses), default=0
                ),
            ),
            Gauge(
                "coming_back_seconds",
                "until the last task that comes back at a rate after a pause has its turn, or 0",
                lambda seen: max((pause.seconds_left for pause in seen.pauses), default=0),
            ),
        ),
        alerts=(
            Alert(
                "DelayqPaused", f"{most('oldest_paused_seconds')} > {MAX_PAUSED:g}",
                "A task has been due and paused for {{ $value | humanizeDuration }}.",
                "The pause may be forgotten; `celery -A APP delayq status` says which it is. "
                "Resume it, or cancel its tasks.",
                "5m",
            ),
            Alert(
                "DelayqComesBackSlowly", f"{most('coming_back_seconds')} > {SLOWLY:g}",
                "The last task that comes back after a pause has its turn in "
                "{{ $value | humanizeDuration }}.",
                "The pause was ended by `delayq resume --rate`; `delayq status` says which. Resume "
                "it once more at a higher rate, or without one.",
                "5m",
            ),
        ),
    ),
    Check[Sight](
        "memory", "whether Redis has room, and deletes no waiting tasks to make some", _room,
        "the store's Redis is full or nearly full, or deletes waiting tasks when it is full",
        runbook="redis-is-full-what-now",
    ),
)  # fmt: skip
