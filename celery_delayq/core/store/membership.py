"""Membership in a store: the types of its keys; the common settings; and how a process joins.

Registration.join --> the script `join`: layout, shards, broker --> refused, warned, or a member
Registration.check_membership --> the same check, which writes nothing

Scripts do not check types: if another program overwrites a key while workers run, a script can stop
half-way. So each key's type is checked when a process joins, and in ``check``.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from ..errors import StoreDiffers, StoreError, StoreUnavailable
from ..servers.connection import Connection, packed
from ..servers.endpoint import Server
from ..servers.risks import ERROR, MOVES, Line, check_alone, check_broker, masters
from ..text import lasting, logger_of
from .keys import KEYS, SCHEMA, Keys
from .record import FORMAT
from .scripts import Scripts

logger = logger_of(__name__)

_STORE_BYTES = 8  # of a store's random name
SILENT_MS: float = 60_000  # without a scanner; then a process that schedules logs a warning

_NOBODY = (
    "no scanner is alive in the store %s, prefix %s: tasks wait there until a worker with the same "
    "delayq_url and delayq_prefix is started"
)

_EMPTIED = Line(
    "beginning", ERROR,
    "this store began {} ago, its scanner {} ago: its Redis was emptied or lost its data, and "
    "tasks that waited before are gone",
    "find out why, load a dump if you have one, and restart the workers to end this message",
)  # fmt: skip

_TOO_OLD = (
    "tasks and rules of this store may have format %s, and this release reads formats up to %s: "
    "its scanner lays those aside for one that reads them; upgrade this worker"
)

# For each type, a command that is refused for keys of another one. The scripts use them as well.
_ASKING = {
    "ZSET": ("ZCARD",),
    "HASH": ("HLEN",),
    "LIST": ("LRANGE", 0, 0),
}


def check_types(connection: Connection, keys: Keys, step: str, until: float | None) -> None:
    """Check that every existing key of the store has the type that the scripts expect.

    Args:
        connection: The connection to the shard's Redis.
        keys: The shard's keys.
        step: The step to name in errors.
        until: When to give up, by the monotonic clock.

    Raises:
        StoreError: a key has another type; it names the key.
        StoreUnavailable: no answer came in time.
    """
    questions = {keys[name]: _question(keys[name], what) for name, what in _types().items()}
    try:
        connection.exchange(step, list(questions.values()), until)
    except StoreUnavailable:
        raise
    except StoreError:
        # All went in one exchange. Repeat them one by one, to find the key and the reason.
        for key, question in questions.items():
            _ask(connection, key, question, step, until)


def _ask(
    connection: Connection, key: str, question: list[bytes], step: str, until: float | None
) -> None:
    try:
        connection.execute(step, question, until)
    except StoreUnavailable:
        raise
    except StoreError as error:
        # If a right is missing, the first step that needs it names that.
        if error.why.startswith("WRONGTYPE"):
            raise StoreError(step, f"the key {key}: {error.why}") from error.__cause__


def _types() -> dict[str, str]:
    types = {name: what.split()[0] for name, what in KEYS.items()}
    return {name: kind for name, kind in types.items() if kind in _ASKING}


def _question(key: str, kind: str) -> list[bytes]:
    command, *rest = _ASKING[kind]
    return packed([command, key, *rest])


def emptied(began_ms: int | None, scanner_ms: int | None, now_ms: int) -> Line | None:
    """Return the line of a store that is younger than one of its scanners; else ``None``.

    Args:
        began_ms: When the store, or a shard of it, was joined first; ``None``: unknown.
        scanner_ms: When the scanner joined it; ``None``: unknown.
        now_ms: The time by Redis's clock, like the others.
    """
    if began_ms is None or scanner_ms is None or began_ms <= scanner_ms:
        return None
    return _EMPTIED.filled(*(lasting((now_ms - then) / 1000) for then in (began_ms, scanner_ms)))


@dataclass(frozen=True)
class Membership:
    """What a process says of its app and its broker when it joins a store.

    Attributes:
        broker: The broker's transport, virtual host or database, and prefix of keys: its own names
            of these, so two that differ are two brokers. With another one, a process is refused.
        hosts: The broker's hosts. A difference is only a warning, as hosts have several names.
        app: The app's name, or empty. If scanners of two apps share a store, they log a warning.
        url: The store's URL, for the log.
        direct: Whether the store's Redis is the broker too.
        redis: The broker's Redis, if it is one, and may be a node of the store's Cluster.
        tagged: Whether the broker's keys have the store's hash tag.
    """

    broker: str = ""
    hosts: str = ""
    app: str = ""
    url: str = ""
    direct: bool = False
    redis: Server | None = None
    tagged: bool = False


class Registration:
    """A process's membership in a store.

    Args:
        scripts: The store's scripts.
        membership: What this process says of its app and broker.
        scanner: Whether it delivers tasks; the scanners decide on which hosts the broker is.

    Attributes:
        joined_ms: When this process joined first, by Redis's clock; 0: not yet.
        warned: The warnings that were logged, each once.
    """

    def __init__(self, scripts: Scripts, membership: Membership, *, scanner: bool = False) -> None:
        self._scripts = scripts
        self._ours = membership
        self._scanner = scanner
        self.joined_ms = 0
        self.warned: set[str] = set()

    def join(self, until: float | None = None, step: str = "join") -> tuple[int, str]:
        """Register with the store.

        Args:
            until: When to give up, by the monotonic clock.
            step: The step to name in errors.

        Returns:
            Redis's time, in us, and the store's random name.

        Raises:
            StoreDiffers: other processes use it with different settings.
            StoreError: this Redis cannot be a store, or another program uses one of its keys.
        """
        ours, settings = self._ours, self._scripts.settings
        seconds, tasks = settings.remember
        try:
            # With several shards, no scanner calls at the meeting place, only at each shard.
            is_shard = settings.shards == 1 or not self._scripts.keys.is_meeting_place
            is_spread = ours.direct and not ours.tagged
            check_alone(self._scripts.connection, "join", until, direct=is_spread)
            check_types(self._scripts.connection, self._scripts.keys, "join", until)
            known = self._scripts.call(
                "join",
                until=until,
                schema=SCHEMA,
                shards=settings.shards,
                timeout=round(settings.timeout * 1000),
                broker=ours.broker,
                hosts=ours.hosts,
                scanner=int(self._scanner and is_shard),
                kept=f"{settings.history} {settings.history_repeats:d}" if settings.history else "",
                remember=f"{seconds * 1000:.0f} {math.ceil(tasks / settings.shards)}",
                store=os.urandom(_STORE_BYTES).hex(),
                app=ours.app,
            )
        except StoreUnavailable as error:
            # The call that needs the join was not sent yet.
            raise StoreUnavailable(step, error.why, False) from error.__cause__
        except StoreError as error:
            raise type(error)(step, error.why) from error.__cause__
        self._agree("layout", known.schema, SCHEMA)
        self._agree("delayq_shards", known.shards, str(settings.shards))
        self._agree("broker", known.broker, ours.broker)
        if self._scanner:
            self._check_broker()
        self.joined_ms = self.joined_ms or known.now // 1000
        if is_shard:
            self._warn_of_store(known, step)
        return known.now, known.store.decode(errors="replace")

    def check_membership(self) -> str:
        """Check, without changing anything, that this process reads what the others write.

        Returns:
            The store's broker, as ``redis, database 0 on red:6379``, if it is not this process's,
            or has other hosts; else empty. The scanners may be gone.

        Raises:
            StoreDiffers: other processes use the store with different settings.
        """
        known = self._scripts.call("agreed")
        if known.schema:
            self._agree("layout", known.schema, SCHEMA)
            self._agree("delayq_shards", known.shards, str(self._scripts.settings.shards))
        broker, hosts = (text.decode(errors="replace") for text in (known.broker, known.hosts))
        is_other = broker not in ("", self._ours.broker) or hosts not in ("", self._ours.hosts)
        return " on ".join(filter(None, (broker, hosts))) if is_other else ""

    def _check_broker(self) -> None:
        """Check a broker that is a Redis, too; only a scanner needs it, and once."""
        ours, link, keys = self._ours, self._scripts.connection, self._scripts.keys
        if ours.redis is not None and keys.is_meeting_place:
            check_broker(link, ours.redis, keys["meta"], tagged=ours.tagged)
        if ours.tagged and ours.direct and (count := masters(link)) > 1:
            self._warn(f"{MOVES}; use a broker that is not in this Cluster", count)

    def _warn_of_store(self, known: Any, step: str) -> None:
        """Warn of what the store said when this process joined it."""
        hosts, app, format_ = (
            text.decode(errors="replace") for text in (known.hosts, known.app, known.format)
        )
        self._warn_if_emptied(known.began, known.now // 1000)
        self._warn_of_hosts(hosts)
        self._warn_of_app(app)
        if self._scanner and format_ > FORMAT:
            self._warn(_TOO_OLD, format_, FORMAT)
        silent = math.inf if known.silent < 0 else known.silent
        if step == "schedule" and silent > SILENT_MS:
            self._warn(_NOBODY, self._ours.url, self._scripts.keys.prefix)

    def _warn_of_hosts(self, theirs: str) -> None:
        # A container, a tunnel, TLS and Sentinel each give one broker another host or port.
        if theirs and theirs != self._ours.hosts:
            self._warn(
                "the scanners of this store reach the broker, %s, on %s, this process on %s; if "
                "these are two brokers, give each app its own delayq_prefix",
                self._ours.broker,
                theirs,
                self._ours.hosts,
            )

    def _warn_of_app(self, theirs: str) -> None:
        ours = self._ours.app
        # Another app may schedule tasks for this one's workers, but must not deliver them.
        if self._scanner and ours and theirs not in ("", ours):
            self._warn(
                "the scanners of this store belong to the app %s, this one belongs to the app %s: "
                "each delivers, shows and selects the other's tasks as well; give each app its "
                "own delayq_prefix",
                theirs,
                ours,
            )

    def _warn_if_emptied(self, began_ms: int, now_ms: int) -> None:
        wrong = emptied(began_ms, self.joined_ms, now_ms)
        # Once: from then on it is younger than this scanner, whatever is emptied again.
        if self._scanner and wrong and _EMPTIED.found not in self.warned:
            self.warned.add(_EMPTIED.found)
            where = self._ours.url, self._scripts.keys.prefix
            logger.error("the store %s, prefix %s, has lost its data: %s", *where, wrong.sentence)

    def _warn(self, text: str, *facts: object) -> None:
        if text not in self.warned:
            self.warned.add(text)
            logger.warning(text, *facts)

    def _agree(self, name: str, theirs: bytes, ours: str) -> None:
        if (said := theirs.decode(errors="replace")) != ours:
            error = StoreDiffers(name, said, ours)
            self._scripts.hooks.differs(error)
            raise error
