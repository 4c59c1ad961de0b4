"""Finds what a user knows a part of: an id, a tag, the name of a task or a queue.

an id     HSCAN of all records, a part at a time; only the matches leave Redis
a tag     the sorted list of tags, from one tag to the next
a name    those that the app knows, and those of the tasks that are due next
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import partial
from heapq import merge
from itertools import groupby, islice
from typing import Any, NamedTuple

from ..core import clock
from ..core.errors import InvalidOption
from ..core.servers.connection import packed
from ..core.services import HasServices, Services
from ..core.store.calls import Shard
from ..core.store.scripts import Scripts
from ..core.tasks import reading
from ..core.threads import begun, gather

MOST_IDS = 20  # that a text is the beginning of, to choose from
SHORTEST = 6  # characters of an id's beginning; shorter ones have too many matches
_STEP = 5_000  # records of an HSCAN, some 2 ms of Redis
_SAMPLE = 200  # tasks whose names are known
_MOST_SIMILAR = 5
_ALIKE = 0.75  # difflib's ratio: one slip in a word of five letters
_PLACE = re.compile(r"(\d{1,2}):(\d{1,20}):(\d{1,10})")
_MAGIC = re.compile(rb"([*?\[\]\\^-])")


class Ids(NamedTuple):
    """The ids that a part of a search found.

    Attributes:
        found: The ids, sorted; one of an earlier part may come again.
        place: Where the next part begins; empty after the last one.
        looked_at: How many records of the store were looked at, roughly.
    """

    found: list[str]
    place: str
    looked_at: int


def ids_with(
    services: Services, beginning: str, *, seconds: float, most: int, place: str = ""
) -> Ids:
    """Look for entries whose id begins with a text, for some seconds.

    Args:
        services: The app's services.
        beginning: At least :data:`SHORTEST` characters.
        seconds: When to stop; at least one part of the records is looked at.
        most: How many are enough; a part may have some more.
        place: Where to begin, from an earlier answer.

    Raises:
        InvalidOption: the text is too short, or *place* is none.
        StoreError: Redis cannot be reached.
    """
    if len(beginning) < SHORTEST:
        raise InvalidOption(
            "id", beginning, f"a whole id, or its first {SHORTEST} characters or more"
        )
    number, cursor, looked_at = _read(place or "0:0:0", len(services.entries.shards))
    pattern = _MAGIC.sub(rb"\\\1", _bytes(beginning)) + b"*"
    until, found, count = clock.monotonic() + seconds, list[str](), min(most, _STEP)
    while number < len(services.entries.shards):
        scripts = services.entries.shards[number].scripts
        after, matches = _ask(scripts, "HSCAN", "records", cursor, "MATCH", pattern, "COUNT", count)
        found += [each.decode(errors="backslashreplace") for each in matches[::2]]
        cursor, looked_at = after.decode(), looked_at + count
        # Records have no order, so the next part has about twice as many matches at most.
        count = min(2 * count, _STEP)
        if cursor == "0":
            number += 1
        if clock.monotonic() >= until or len(found) >= most:
            break
    is_over = number == len(services.entries.shards)
    # While Redis resizes the hash, HSCAN may return an entry twice.
    return Ids(sorted({*found}), "" if is_over else f"{number}:{cursor}:{looked_at}", looked_at)


def ids_from(delayq: HasServices, beginning: str) -> list[str]:
    """Return the ids of entries that begin with a text: all, or the first :data:`MOST_IDS`.

    Raises:
        InvalidOption: the text is shorter than :data:`SHORTEST`.
        StoreError: Redis cannot be reached.
    """
    found, place = set[str](), ""
    while len(found) < MOST_IDS:
        ids = ids_with(delayq.services, beginning, seconds=1, most=MOST_IDS, place=place)
        found, place = found | {*ids.found}, ids.place
        if not place:
            break
    return sorted(found)[:MOST_IDS]


def tags_with(services: Services, beginning: str, most: int) -> list[str]:
    """Return the first tags that begin with a text, in their order.

    Raises:
        StoreError: Redis cannot be reached.
    """
    all_of_them = merge(*begun(_tags_of(shard, beginning) for shard in services.entries.shards))
    return list(islice((tag for tag, _ in groupby(all_of_them)), most))


def tag_count(services: Services, tag: str) -> int:
    """Return how many entries in the store have a tag: waiting, in flight, and dead ones.

    Raises:
        StoreError: Redis cannot be reached.
    """
    name = _bytes(tag)
    bounds = b"[" + name + b"\0", b"(" + name + b"\x01"
    asked = ("ZLEXCOUNT", "tags", *bounds)
    shards = services.entries.shards
    return sum(gather(*(partial(_ask, shard.scripts, *asked) for shard in shards)))


def names_of(delayq: HasServices) -> tuple[list[str], list[str]]:
    """Return the names of tasks and of queues that the app knows, without Celery's own tasks."""
    app = delayq.services.app
    tasks = (name for name in app.tasks if not name.startswith("celery."))
    return sorted(tasks), sorted(app.amqp.queues)


def suggested(delayq: HasServices, kind: str, text: str) -> list[str]:
    """Return what the user may have meant instead of a ``task``, ``queue`` or ``tag``.

    Raises:
        StoreError: Redis cannot be reached.
    """
    if kind == "tag":
        return [tag for tag in tags_with(delayq.services, text, _MOST_SIMILAR) if tag != text]
    return similar(text, known_names(delayq, kind))


def known_names(delayq: HasServices, kind: str) -> set[str]:
    """Return the names of tasks or queues that the app has, or that tasks due next have.

    Raises:
        StoreError: Redis cannot be reached.
    """
    known = names_of(delayq)[0 if kind == "task" else 1]
    waiting = reading.tasks(delayq, limit=_SAMPLE)
    seen = {name for task in waiting if (name := task.task if kind == "task" else task.queue)}
    return {*known, *seen}


def similar(text: str, known: Iterable[str]) -> list[str]:
    """Return the names that contain a text, and those that are spelt much like it."""
    names = sorted({*known} - {text})
    inside = [name for name in names if text.lower() in name.lower()]
    close = get_close_matches(text, names, _MOST_SIMILAR, _ALIKE)
    # "remnd" for "shop.remind": people leave the module out.
    last = [name for name in names if get_close_matches(text, [name.rpartition(".")[2]], 1, _ALIKE)]
    return list(dict.fromkeys([*inside, *close, *last]))[:_MOST_SIMILAR]


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")  # a terminal's text may have broken characters


def _tags_of(shard: Shard, beginning: str) -> Iterator[str]:
    start = _bytes(beginning)
    low = b"[" + start
    scripts = shard.scripts
    while True:
        found = _ask(scripts, "ZRANGEBYLEX", "tags", low, "+", "LIMIT", 0, 1)
        if not found or not found[0].startswith(start):
            return
        tag = found[0].partition(b"\0")[0]
        yield tag.decode(errors="backslashreplace")
        low = b"[" + tag + b"\x01"


def _ask(scripts: Scripts, command: str, key: str, *rest: bytes | str | int) -> Any:
    return scripts.connection.execute("find", packed([command, scripts.keys[key], *rest]))


def _read(place: str, shards: int) -> tuple[int, str, int]:
    found = _PLACE.fullmatch(place)
    if not found or int(found[1]) >= shards:
        raise InvalidOption("cursor", place, "the place at which the search stopped")
    return int(found[1]), found[2], int(found[3])
