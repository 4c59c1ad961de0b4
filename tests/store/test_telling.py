"""The scripts notify one scanner, once, and only if it would otherwise be late."""

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store.changes import Removal
from tests.store.support import FAR_MS, NOW_MS

pytestmark = pytest.mark.core

ASLEEP = 5.0  # seconds for which the scanners here sleep at most
UP_MS = NOW_MS + 5000  # so they look by then
ALL = "all"

both_kinds = pytest.mark.parametrize("put", ["schedule", "schedule_relayed"])


class Ears:
    """Listens in place of the named scanners, and to messages for all scanners."""

    def __init__(self, store, *names):
        common = store.keys["wake"]
        channels = {store.keys.channels(name)[1]: name for name in names} | {common: ALL}
        self._names = {channel.encode(): name for channel, name in channels.items()}
        self._common = common
        self._raw = store.raw
        self._heard = store.raw.pubsub(ignore_subscribe_messages=True)
        self._heard.subscribe(*channels)

    def heard(self) -> list[str]:
        """The scanners notified since the last call, in order."""
        self._raw.publish(self._common, "that is all")
        told = []
        while True:
            message = self._heard.get_message(timeout=30)
            if message and message["data"] == b"that is all":
                return told
            if message:
                told.append(self._names[message["channel"]])

    def close(self):
        self._heard.close()


@pytest.fixture
def listen(store):
    made = []

    def listening(*names):
        made.append(Ears(store, *names))
        return made[-1]

    yield listening
    for ears in made:
        ears.close()


@pytest.fixture
def scanner(store):
    """Make a scanner with that name, which has looked once."""

    def make(name, **options):
        shard_steps = store.steps()
        shard_steps.name = name
        shard_steps.hand_over(asleep=ASLEEP, **options)
        return shard_steps

    return make


def timer(store) -> tuple[int, str] | None:
    text = store.raw.hget(store.keys["meta"], "timer")
    if text is None:
        return None
    at, _, name = text.decode().partition(":")
    return int(at), name


# The scanners that a script notifies.

DAY = FAR_MS - NOW_MS
UP = UP_MS - NOW_MS
# Steps, with times in ms from now: a number schedules an entry, a name lets that scanner look,
# "at" sets the clock, "move" and "by" move the first entry; a list has the scanners notified since.
ROWS = {
    "no scanner has promised": [DAY, DAY + 1, [ALL], DAY - 1, [ALL]],
    "an entry is due before one is up": ["a", "b", UP - 1, ["a"]],
    "entries are due when it is up, or later": ["a", UP, DAY, []],
    "several are due before, and an earlier one": ["a", 500, 500, 900, ["a"], 499, ["a"]],
    "several are due already": ["a", 0, -1000, -2000, -3000, -4000, ["a"]],
    "it is a tenth of a second late": ["a", ("at", UP + 100), UP + 5100, []],
    "it is later than that": ["a", ("at", UP + 101), UP + 5101, [ALL]],
    "it was notified, and hangs": ["a", "b", 10, ["a"], ("at", 111), 120, [ALL]],
    "it looked first after all were notified": [500, "a", "b", 400, [ALL, "a"]],
    "a far entry moves to before it is up": [
        *(DAY, "a", [ALL], ("move", UP), [], ("move", UP - 1), ["a"]),
    ],
    "the head moves to later and to earlier": [
        *(1000, "a", [ALL], ("by", 1000), [], ("move", 999), ["a"]),
    ],
}


@both_kinds
@pytest.mark.parametrize("steps", ROWS.values(), ids=ROWS)
def test_a_script_notifies_one_scanner_once_or_all_if_none_comes(
    store, listen, scanner, put, steps
):
    ears, number = listen("a", "b"), 0
    for step in steps:
        match step:
            case int():
                getattr(store, put)(f"x{number}", NOW_MS + step)
                number += 1
            case str():
                scanner(step)
            case list():
                assert ears.heard() == step
            case "at", ms:
                store.set_ms(NOW_MS + ms)
            case "move", ms:
                store.reschedule("x0", When("at", NOW_MS + ms))
            case "by", ms:
                store.reschedule("x0", When("by", ms))


def test_a_script_does_not_rely_on_a_scanner_that_does_not_listen(store, listen, scanner):
    """It died, and Redis has closed its connection; or it may not subscribe."""
    ears = listen("b")
    scanner("a")
    store.schedule("x", NOW_MS + 500)
    store.schedule("y", NOW_MS + 500)
    assert ears.heard() == [ALL]
    assert timer(store) == (NOW_MS + 500, "")


# The changes that notify them.


def test_bringing_back_what_is_dead_tells_a_scanner(store, listen, scanner):
    ears = listen("a")
    store.at("dead", "x")
    scanner("a")
    ears.heard()
    store.reschedule("x", When("after", 0))
    assert ears.heard() == ["a"]


def test_a_cancel_or_a_refused_call_notifies_nobody(store, listen, scanner):
    store.schedule("x", NOW_MS + 500)
    scanner("a")
    ears = listen("a")
    with pytest.raises(ValueError, match="already scheduled"):
        store.schedule("x", 0)
    with pytest.raises(ValueError, match="before"):
        store.schedule("y", 10**15)
    store.entries.change("x", Removal())
    assert ears.heard() == []


# While a scanner publishes to a broker.


def test_a_scanner_that_goes_to_publish_leaves_new_entries_to_a_living_one(store, listen, scanner):
    ears = listen("a", "b", "c")
    scanner("b")
    scanner("c")
    store.set_ms(NOW_MS + 3000)
    scanner("b")
    store.schedule_relayed("r", NOW_MS)
    ears.heard()
    store.raw.hdel(store.keys["meta"], "timer")
    scanner("a")
    # No entry waits that needs the other scanner; for a new one, a script notifies it.
    store.schedule("x", FAR_MS)
    store.schedule("y", FAR_MS + 1)
    assert ears.heard() == ["b"]


def test_a_lone_scanner_that_publishes_is_told_itself_and_looks_afterwards(store, listen, scanner):
    ears = listen("a")
    store.schedule_relayed("r", NOW_MS)
    ears.heard()
    shard_steps = scanner("a")
    store.schedule("x", NOW_MS + 500)
    assert ears.heard() == ["a"]
    store.take("left", "r", by=shard_steps)
    assert shard_steps.hand_over(asleep=ASLEEP).has_timer
    assert timer(store) == (NOW_MS + 500, "a")


def test_a_stand_in_gives_way_to_the_scanner_that_knows_the_next_entry(store, scanner):
    scanner("b")
    store.schedule_relayed("r", NOW_MS)
    store.schedule("x", NOW_MS + 500)
    shard_steps = scanner("a")
    store.take("left", "r", by=shard_steps)
    assert shard_steps.hand_over(asleep=ASLEEP).has_timer
    assert timer(store) == (NOW_MS + 500, "a")


def test_a_scanner_that_waits_for_the_broker_is_up_as_announced(store, listen, scanner):
    """It will not publish for some seconds; so it still wakes at the time that it announced."""
    ears = listen("a")
    store.schedule_relayed("r", NOW_MS)
    ears.heard()
    scanner("a", relay_in=2.0)
    assert timer(store) == (NOW_MS + 2000, "a")
    store.schedule("x", NOW_MS + 1999)
    assert ears.heard() == ["a"]
