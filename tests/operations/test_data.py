"""Each duty in `owed.KEEPS` keeps all data of an entry, except for what the table says.

The data are the fields of the classes that the store's answers are read into, and the message's. So
a new field is compared as soon as it is there; the test fails until an entry here has one.
"""

import contextlib
import json
import re
from dataclasses import fields, replace

import pytest

from celery_delayq import Outcome
from celery_delayq.contrib.care.dump import kept_in
from celery_delayq.contrib.care.migration import Resharding
from celery_delayq.core.store import Keys
from celery_delayq.core.store.record import Extras, Facts, Record
from celery_delayq.core.store.scripts import prelude
from tests.app.support import FAR, LONG_AGO
from tests.operations.owed import KEEPS
from tests.support.places import take
from tests.support.shards import SHARDS, each

YEARS = 10**9  # seconds
TERMS = {
    "delayq_tags": ["tag", "other"],
    "delayq_late": "skip",
    "delayq_grace": YEARS,
    "delayq_unique_until": "finished",
    "delayq_unique_for": 3600,
    "expires": YEARS,
    "headers": {"trace": "1"},
}
# What no option of a call sets.
SET_LATER = {"excused_ms": 1_700_000_000_000, "others": (b"\xffof a later release \xfe",)}
# An edit or a release of one that was released is refused.
CHANGED, ENTRIES = ("waiting", "refused"), ("waiting", "refused", "released")

#: Facts that no waiting entry has, and what the record has or others are told.
OF_OTHERS = {
    *("word", "header_end", "due_ms", "since_ms", "paused_by", "behind", "behind_until_ms"),
    *("late_from_ms", "why"),
}
OF_STORE = [one.name for one in fields(Facts) if one.name not in OF_OTHERS]
#: A record's properties that are data: not how it is stored, and not its extras.
OF_RECORD = [
    name
    for name, one in vars(Record).items()
    if isinstance(one, property) and name[0] != "_" and name not in ("extras", "name", "seen")
]
OF_EXTRAS = [one.name for one in fields(Extras)]


def data_of(kept):
    """All data of an entry, by name."""
    message = json.loads(kept.message)
    parts = (message.pop("headers"), message.pop("properties"), message)
    return {
        **{f"message's {name}": value for part in parts for name, value in part.items()},
        "id": kept.task_id,
        "place": kept.place,
        **{name: getattr(kept.facts, name) for name in OF_STORE},
        **{name: getattr(kept.record, name) for name in OF_RECORD},
        **{name: getattr(kept.record.extras, name) for name in OF_EXTRAS},
    }


def data(delayq):
    """The data of each entry, by its id."""
    return {kept.task_id: data_of(kept) for kept in kept_in(delayq.services.entries)}


@pytest.fixture
def new(delayq_app, url):
    """A process that uses the store: ``new(shards)``."""
    return lambda shards=SHARDS: (
        delayq_app(url, delayq_shards=shards, delayq_undo=(3600, 10)).delayq
    )


@pytest.fixture
def delayq(new, redis):
    """A store whose entries have a value in each field: at least one of them, in each."""
    delayq = new()
    schedule(delayq, redis, "refused", LONG_AGO, exchange="elsewhere", routing_key="key")
    take(delayq, "refused", "refused", wait=YEARS, uncertain=True)
    schedule(delayq, redis, "released", FAR)
    assert delayq.select(after_due=FAR).release() == 1
    schedule(delayq, redis, "waiting", FAR, priority=3)
    return delayq


def schedule(delayq, redis, task_id, due, **options):
    key = f"key of {task_id}"
    delayq.app.send_task(
        "t", (1,), task_id=task_id, delayq_at=due, delayq_key=key, **TERMS, **options
    )
    for records in each("records"):
        if text := redis.hget(records, task_id):
            start = re.match(rb"..\d+:", text)
            record = Record(text, start.end() + int(start[0][2:-1]))
            later = replace(record.extras, **SET_LATER)
            same = text[: -len(record.extras.text())]
            redis.hset(records, task_id, same + later.text())


def by_edit(delayq, redis, new):
    for task_id in CHANGED:
        assert delayq.edit(task_id, kwargs={"new": 1}) in (Outcome.DONE, Outcome.UNCERTAIN)


def by_reschedule(delayq, redis, new):
    for task_id in CHANGED:
        assert delayq.reschedule(task_id, FAR + 1) in (Outcome.DONE, Outcome.UNCERTAIN)


def by_release(delayq, redis, new):
    assert delayq.select(all=True).release() == len(CHANGED)


def by_undo(delayq, redis, new):
    for task_id in ENTRIES:
        assert delayq.cancel(task_id) in (Outcome.DONE, Outcome.UNCERTAIN)
        delayq.undo(task_id)


def by_dump_and_load(delayq, redis, new):
    lines = [json.dumps(line) for line in delayq.dump()]
    redis.flushall()
    another = new()
    assert another.load(lines).loaded == len(ENTRIES)
    return another


def by_reshard(delayq, redis, new):
    redis.hset(Keys("delayq")["meta"], "timeout", 1)  # ms that it waits for the calls of others
    with contextlib.closing(Resharding(delayq.services)) as one:
        assert one.run(SHARDS + 1)
    return new(SHARDS + 1)


DUTIES = {
    "edit": by_edit,
    "reschedule": by_reschedule,
    "release": by_release,
    "undo": by_undo,
    "dump and load": by_dump_and_load,
    "reshard": by_reshard,
}


def test_each_field_of_an_entry_is_tried(delayq):
    entries = data(delayq).values()
    fields_of_all = (*OF_STORE, *OF_RECORD, *OF_EXTRAS)
    empty = [name for name in fields_of_all if not any(entry[name] for entry in entries)]
    assert not empty, f"let an entry in {__name__} have a value in {', '.join(empty)}"
    # The last of the flag bytes that a script takes has each flag.
    (last,) = re.findall(r"\[0-(.)\]", prelude().definitions["SOUND"].literal)
    tried = 0
    for entry in entries:
        tried |= entry["flags"]
    assert tried == ord(last) - ord("0"), f"let an entry in {__name__} have the new flag"


@pytest.mark.parametrize("duty", KEEPS)
def test_a_duty_keeps_all_data_of_an_entry(delayq, redis, new, duty):
    before = data(delayq)

    after = data(DUTIES[duty](delayq, redis, new) or delayq)

    changed = {
        name
        for task_id in ENTRIES
        for name in before[task_id].keys() | after[task_id].keys()
        if before[task_id].get(name) != after[task_id].get(name)
    }
    lost = changed - KEEPS[duty].keys()
    assert not lost, f"{duty} owes {', '.join(sorted(lost))}: keep it, or say why not in owed.py"
    assert changed == {*KEEPS[duty]}
