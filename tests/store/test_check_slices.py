"""`check` reads the store in slices: small at first, larger as long as they are light."""

from collections import defaultdict

import pytest

from celery_delayq.contrib.care.checking import check
from celery_delayq.core.store.extras import Extras
from tests.store.support import FAR_MS, NOW_MS

FIRST, MOST = 20, 200


@pytest.fixture
def counts_of(store, monkeypatch):
    """How many fields each slice of a part requested during a check."""

    def look():
        asked, call = defaultdict(list), store.scripts.call

        def noting(name, **arguments):
            if name == "check":
                asked[arguments["part"]].append(arguments["count"])
            return call(name, **arguments)

        monkeypatch.setattr(store.scripts, "call", noting)
        assert list(check(store.entries)) == []
        return asked

    return look


def test_slices_of_small_entries_grow(store, counts_of):
    store.flood(3000, FAR_MS)
    counts = counts_of()
    for part in ("records", "due"):
        assert counts[part][:5] == [FIRST, 40, 80, 160, MOST]
        assert set(counts[part][4:]) == {MOST}


def test_slices_of_large_values_stay_small(store, counts_of):
    large = "x" * 60_000
    for number in range(150):  # Redis returns a small set in one slice, whatever its COUNT
        extras = Extras(f"{number:0100}", ("t",))
        store.schedule(f"a{number}", FAR_MS, payload=large, extras=extras)
        store.raw.hset(store.keys["outbox_messages"], f"b{number}", large)
        store.raw.zadd(store.keys["outbox"], {f"b{number}": NOW_MS})
    counts = counts_of()
    for part in ("records", "due", "tags", "holders", "outbox_messages"):
        assert len(counts[part]) > 150 / FIRST
        assert max(counts[part]) == FIRST
