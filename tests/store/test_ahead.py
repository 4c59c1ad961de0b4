"""How many waiting entries fall due in each of some spans of time."""

import pytest

from celery_delayq.core.store import counts
from tests.store.support import NOW_MS

pytestmark = pytest.mark.core


def told(store, span_ms, spans, **after):
    return counts.falling_due(store.entries.shards, span_ms, spans, **after)


def test_each_entry_is_counted_in_the_span_in_which_it_is_due(store):
    assert told(store, 60_000, 1000) == (NOW_MS, [0] * 1000)
    for number, after in enumerate((-5, 0, 1, 10, 11, 20, 30, 31)):
        put = store.schedule_relayed if number % 2 else store.schedule
        put(f"task-{number}", NOW_MS + after)
    assert told(store, 10, 3) == (NOW_MS, [2, 2, 1])
    assert told(store, 31, 1) == (NOW_MS, [6])


def test_the_spans_can_begin_at_any_time(store):
    for number, after in enumerate((-1001, -1000, -999, 0, 1)):
        store.schedule(f"task-{number}", NOW_MS + after)
    assert told(store, 1000, 2, after_ms=NOW_MS - 1001) == (NOW_MS, [2, 2])
    assert told(store, 1000, 1, after_ms=0) == (NOW_MS, [0])
