"""Raises the stored format, once each process can read it.

    each scanner --heartbeat--> the newest format that it reads
    upgrade ---> the newest that all of them read, and this release --> meta, format
    a process that joins -----> writes records and rules of that format, if it knows it

``lua/prelude/record.lua`` and ``lua/prelude/rules.lua`` say what each format keeps.
What a format changes, a release says in its changelog. It is raised by hand, because only you know
whether you may still want to go back to the release before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...core.servers.risks import OK, WARNING, Line
from ...core.services import Services
from ...core.store.record import FORMAT
from ...core.store.scripts import Scripts
from ...core.text import counted, plain

_ASIDE = "it lays such tasks and rules aside for another one: upgrade its worker"


def format_of(shards: Iterable[Scripts]) -> str:
    """Return the newest format of records and rules of these shards; empty, if unused."""
    return max(_text(shard.call("agreed").format) for shard in shards)


def upgrade(services: Services) -> str:
    """Let records and rules have the newest format that this release and each live scanner read.

    Returns:
        The newest that they may have from now on. It is never lowered.

    Raises:
        StoreDiffers: other processes use the store with different settings.
        StoreError: the store cannot be reached, or refuses.
    """
    services.entries.check_membership()
    return min(_text(shard.call("upgrade")[0]) for shard in services.scripts)


def older_scanners(services: Services, than: str) -> list[str]:
    """Return the names of the live scanners that do not read a format."""
    return sorted(one.name for one in services.entries.scanners() if one.reads < than)


def formats(services: Services) -> Iterator[Line]:
    """Say whether each scanner reads what the store has, and whether more is possible."""
    has = format_of(services.scripts) or FORMAT
    old = older_scanners(services, has)
    for name in old:
        yield Line("format", WARNING, f"scanner {plain(name)} reads none of format {has}", _ASIDE)
    if has < FORMAT and not older_scanners(services, FORMAT):
        found = f"tasks and rules have format {has}, and each scanner reads {FORMAT}"
        yield Line("format", WARNING, found, "run celery delayq upgrade, if you do not go back")
    elif not old:
        yield Line("format", OK, f"tasks and rules have format {has}, and each scanner reads it")


def _text(word: bytes) -> str:
    return word.decode()


def told(new: str, old: Sequence[str]) -> str:
    """Say what an upgrade did; *old*: the scanners that are in the way of a newer format."""
    if new >= FORMAT:
        return f"tasks and rules may have format {new}, the newest that this release knows"
    names = ", ".join(map(plain, old))
    scanners = counted(len(old), "scanner")
    return f"tasks and rules keep format {new}: {scanners} cannot read {FORMAT}: {names}"
