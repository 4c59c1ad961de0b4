"""What a process is in a store: what it has to agree on with the others.

Member.join --> the script `join`: layout, shards, broker --> refused, warned of, or a member
Member.check_membership --> the same question, and nothing is written
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from ..errors import StoreDiffers, StoreError, StoreUnavailable
from ..logs import logger_of
from ..servers.alone import check_alone
from .keys import SCHEMA
from .scripts import Scripts
from .types import check_types

STORE_BYTES = 8  # of what tells a store from every other one
SILENT_MS: float = 60_000  # without a scanner; then who schedules is warned

_NOBODY = (
    "no scanner is alive in the store %s, prefix %s: tasks wait there until a worker with the same "
    "delayq_url and delayq_prefix is started"
)

logger = logger_of(__name__)


@dataclass(frozen=True)
class Membership:
    """What the processes that share a store have to agree on.

    Attributes:
        timeout: Seconds that a call takes at most; it may differ, and the greatest counts.
        broker: The broker's transport, virtual host and prefix of keys.
        hosts: Where the broker is; a name may differ from an address, so this is only warned of.
        shards: Over how many shards the entries are spread.
        history: How many events the history has, at most; 0: there is none. Where processes
            differ, the last that joined decides.
        repeats: Whether it has events that equal the one before.
        app: The app's name; scanners of two apps in one store are warned. Empty: it has none.
        url: Where the store is, for the log.
        direct: Whether the store's Redis is the broker as well.
    """

    timeout: float
    broker: str = ""
    hosts: str = ""
    shards: int = 1
    history: int = 0
    repeats: bool = True
    app: str = ""
    url: str = ""
    direct: bool = False

    @property
    def kept(self) -> str:
        """What the store is to note of its history; see ``lua/prelude/history.lua``."""
        return f"{self.history} {int(self.repeats)}" if self.history else ""


class Member:
    """A process's membership in a store.

    Args:
        scripts: The store's.
        membership: What this process has.
        scanner: Whether it hands over; a scanner decides which broker is the store's.

    Attributes:
        store: What tells the store from every other one, as it was when this process joined.
    """

    def __init__(self, scripts: Scripts, membership: Membership, *, scanner: bool = False) -> None:
        self.store = ""
        self._scripts = scripts
        self._ours = membership
        self._scanner = scanner
        self._warned: set[str] = set()

    def join(self, until: float | None = None, step: str = "join") -> int:
        """Become known to the store.

        Args:
            until: When to give up, by the monotonic clock.
            step: What it is for, as an error shall say.

        Returns:
            Redis's time, in us.

        Raises:
            StoreDiffers: it is used in another way than this process would.
            StoreError: it cannot be a store, or one of its keys is another program's.
        """
        ours = self._ours
        try:
            check_alone(self._scripts.connection, "join", until, direct=ours.direct)
            check_types(self._scripts.connection, self._scripts.keys, "join", until)
            now_us, silent_ms, *known = self._scripts.call(
                "join",
                until=until,
                schema=SCHEMA,
                shards=ours.shards,
                timeout=round(ours.timeout * 1000),
                broker=ours.broker,
                hosts=ours.hosts,
                scanner=int(self._scanner),
                kept=ours.kept,
                store=os.urandom(STORE_BYTES).hex(),
                app=ours.app,
            )
        except StoreUnavailable as error:
            # Of the call that it is for, nothing was sent yet.
            raise StoreUnavailable(step, error.why, False) from error.__cause__
        except StoreError as error:
            raise type(error)(step, error.why) from error.__cause__
        schema, shards, broker, hosts, self.store, app = (
            word.decode(errors="replace") for word in known
        )
        _agree("layout", schema, SCHEMA)
        _agree("number of shards", shards, str(ours.shards))
        if self._scanner:
            _agree("broker", broker, ours.broker)
        self._warn_of_broker((broker, hosts))
        self._warn_of_app(app)
        if step == "schedule" and (math.inf if silent_ms < 0 else silent_ms) > SILENT_MS:
            self._warn(_NOBODY, ours.url, self._scripts.keys.prefix)
        told_us: int = now_us
        return told_us

    def check_membership(self) -> str:
        """Find out whether this process reads the store as the others write it; it changes nothing.

        Returns:
            The broker of the scanners, as ``redis, database 0 on red:6379``, where it is not this
            process's; else empty. They may be gone.

        Raises:
            StoreDiffers: it would not.
        """
        schema, shards, *theirs = (
            word.decode(errors="replace") for word in self._scripts.call("agreed")
        )
        if schema:
            _agree("layout", schema, SCHEMA)
            _agree("number of shards", shards, str(self._ours.shards))
        is_other = theirs[0] and theirs != [self._ours.broker, self._ours.hosts]
        return " on ".join(theirs) if is_other else ""

    def _warn_of_broker(self, theirs: tuple[str, str]) -> None:
        ours = self._ours.broker, self._ours.hosts
        if theirs[0] and theirs != ours:
            self._warn(
                "this store's scanners have the broker %s on %s, this process %s on %s; two apps "
                "that share a store want a delayq_prefix each",
                *theirs,
                *ours,
            )

    def _warn_of_app(self, theirs: str) -> None:
        ours = self._ours.app
        # Another app may well schedule for the workers of this one; but not hand over for them.
        if self._scanner and ours and theirs not in ("", ours):
            self._warn(
                "this store's scanners are of the app %s, this one is of the app %s: each hands "
                "over, shows and selects the other's tasks as well; give each app a delayq_prefix "
                "of its own",
                theirs,
                ours,
            )

    def _warn(self, text: str, *facts: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            logger.warning(text, *facts)


def _agree(name: str, theirs: str, ours: str) -> None:
    if theirs != ours:
        raise StoreDiffers(name, theirs, ours)
