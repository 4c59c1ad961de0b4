"""Checks whether a worker or the broker has the tasks that hold unique keys until they finish."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.servers.risks import OK, WARNING, Line, ask
from ...core.services import Services
from ...core.store import KeyHolder
from ...core.text import counted, plain
from ...operations.queues import answers, is_idle

MOST = 100  # keys of a shard that are looked at
NAMED = 10
_FORLORN = (
    "task {} holds the key {} until {:%Y-%m-%d %H:%M} UTC, and neither a worker nor the broker has "
    "that task"
)
_FREE_IT = "if it does not run: celery -A proj delayq free {}"


def held_keys(services: Services) -> Iterator[Line]:
    """Yield a warning for each key whose task nobody has: it was purged, or its worker was killed.

    Nothing, if no key is held so, or somebody may have the tasks: a worker that does not answer, or
    the broker, which has messages.
    """
    held = {hold.id: hold for hold in _held(services)}
    if not held:
        return
    heard = answers(services, "query_task", ids=[*held])
    alive = {task_id for tasks in heard.values() if isinstance(tasks, dict) for task_id in tasks}
    if not heard or len(heard) < len(services.entries.scanners()) or not is_idle(services):
        return
    # Those that were held before, and are still held after the answers.
    lost = [hold for hold in held.values() if hold.id not in alive and _is_held(services, hold)]
    for hold in lost[:NAMED]:
        found = _FORLORN.format(plain(hold.id), plain(hold.key), hold.until)
        yield Line("keys", WARNING, found, _FREE_IT.format(plain(hold.key)))
    if len(lost) > NAMED:
        yield Line("keys", WARNING, f"so do {counted(len(lost) - NAMED, 'more task')}", "the same")
    if not lost:
        yield Line("keys", OK, f"workers have the tasks of {counted(len(held), 'held key')}")


def _held(services: Services) -> Iterator[KeyHolder]:
    for shard in services.scripts:
        for key in ask(shard.connection, "ZRANGE", shard.keys["held"], 0, MOST - 1) or ():
            holder = services.entries.holder(key.decode(errors="replace"))
            if holder is not None and holder.state == "left" and holder.until_finished:
                yield holder


def _is_held(services: Services, seen: KeyHolder) -> bool:
    now = services.entries.holder(seen.key)
    return now is not None and now.delivery == seen.delivery
