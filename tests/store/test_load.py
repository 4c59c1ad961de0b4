"""The step that loads dumped entries: a late request of it changes nothing."""

import pytest

from celery_delayq.core.store import State
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.entries import OldEntry, restore
from celery_delayq.core.store.record import header_for
from tests.store.requests import entries_sent
from tests.store.support import FAR_MS, NOW_MS, new_record

pytestmark = pytest.mark.core


def request(store, *, issued_ms, entry):
    deadline = (NOW_MS + 4000) * 1000
    issued = issued_ms * 1000
    words = {"operation": b"one", "issued": issued, "deadline": deadline, "began": issued}
    words["store"] = store.raw.hget(store.keys["meta"], "store") or b""
    entries = entries_sent(store, "load", lambda entries: restore(entries, [entry]))
    return store.scripts.call("load", **words, entries=entries)


def test_an_entry_cancelled_after_the_request_of_a_load_is_not_loaded_by_it(store):
    entry = OldEntry("a", FAR_MS, NOW_MS * 1000 + 5, new_record("a", header_for("L", "q")))
    store.schedule("a", FAR_MS)
    store.set_ms(NOW_MS + 2)
    store.entries.change("a", Removal())
    # It leaves no other trace.
    store.raw.delete(store.keys["tombstones"])

    store.set_ms(NOW_MS + 3)
    late = request(store, issued_ms=NOW_MS + 1, entry=entry)
    anew = request(store, issued_ms=NOW_MS + 3, entry=entry)

    assert late[1] == b"stale"
    assert anew[1:] == [b"answer", b"loaded"]


def test_a_dead_task_that_is_loaded_is_dead_though_the_store_was_tidy(store):
    store.schedule("there", FAR_MS)
    store.steps().hand_over()
    assert store.raw.hget(store.keys["meta"], "tidy") == b"wu"
    record = new_record("a", header_for("L", "q"))

    request(store, issued_ms=NOW_MS, entry=OldEntry("a", FAR_MS, 5, record, "dead", NOW_MS))

    assert store.entries.state("a") is State.DEAD
