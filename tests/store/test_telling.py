"""The scripts notify one scanner, once, and only if it would otherwise be late."""

import pytest

from celery_delayq.core.clock import When
from tests.store.support import FAR_MS, NOW_MS

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


@both_kinds
def test_where_nobody_has_promised_all_are_told_once(store, listen, put):
    ears = listen()
    getattr(store, put)("a", FAR_MS)
    getattr(store, put)("later", FAR_MS + 1)
    assert ears.heard() == [ALL]
    getattr(store, put)("earlier", FAR_MS - 1)
    assert ears.heard() == [ALL]


@both_kinds
def test_an_entry_due_before_a_scanner_is_up_notifies_that_scanner_alone(
    store, listen, scanner, put
):
    ears = listen("a", "b")
    scanner("a")
    scanner("b")
    getattr(store, put)("early", UP_MS - 1)
    assert ears.heard() == ["a"]


@both_kinds
def test_an_entry_due_when_the_scanner_is_up_or_later_notifies_none(store, listen, scanner, put):
    ears = listen("a")
    scanner("a")
    getattr(store, put)("then", UP_MS)
    getattr(store, put)("later", FAR_MS)
    assert ears.heard() == []


def test_of_many_that_come_it_is_told_once_unless_one_is_due_before(store, listen, scanner):
    ears = listen("a")
    scanner("a")
    store.schedule("a", NOW_MS + 500)
    store.schedule("b", NOW_MS + 500)
    store.schedule("c", NOW_MS + 900)
    assert ears.heard() == ["a"]
    store.schedule("d", NOW_MS + 499)
    assert ears.heard() == ["a"]


def test_of_what_is_due_already_it_is_told_once(store, listen, scanner):
    ears = listen("a")
    scanner("a")
    for step in range(5):
        store.schedule(f"a{step}", NOW_MS - step * 1000)
    assert ears.heard() == ["a"]


def test_a_script_does_not_rely_on_a_scanner_that_does_not_listen(store, listen, scanner):
    """It died, and Redis has closed its connection; or it may not subscribe."""
    ears = listen("b")
    scanner("a")
    store.schedule("x", NOW_MS + 500)
    store.schedule("y", NOW_MS + 500)
    assert ears.heard() == [ALL]
    assert timer(store) == (NOW_MS + 500, "")


@pytest.mark.parametrize("late", [100, 101])
def test_a_scanner_that_should_have_been_up_is_given_a_tenth_of_a_second(
    store, listen, scanner, late
):
    ears = listen("a")
    scanner("a")
    store.set_ms(UP_MS + late)
    store.schedule("x", UP_MS + late + 5000)
    assert ears.heard() == ([ALL] if late > 100 else [])


def test_all_scanners_are_notified_if_a_notified_one_does_not_come(store, listen, scanner):
    """It hangs, and its connection stays open."""
    ears = listen("a", "b")
    scanner("a")
    scanner("b")
    store.schedule("x", NOW_MS + 10)
    assert ears.heard() == ["a"]
    store.set_ms(NOW_MS + 111)
    store.schedule("y", NOW_MS + 120)
    assert ears.heard() == [ALL]


def test_the_scanner_that_looks_first_after_all_were_notified_is_up_next(store, listen, scanner):
    ears = listen("a", "b")
    store.schedule("x", NOW_MS + 500)
    scanner("a")
    scanner("b")
    store.schedule("y", NOW_MS + 400)
    assert ears.heard() == [ALL, "a"]


# The changes that notify them.


@both_kinds
def test_a_reschedule_to_before_it_is_up_tells_it(store, listen, scanner, put):
    ears = listen("a")
    getattr(store, put)("x", FAR_MS)
    scanner("a")
    ears.heard()
    store.reschedule("x", When("at", UP_MS))
    assert ears.heard() == []
    store.reschedule("x", When("at", UP_MS - 1))
    assert ears.heard() == ["a"]


def test_moving_the_head_to_earlier_tells_it_and_to_later_does_not(store, listen, scanner):
    ears = listen("a")
    store.schedule("x", NOW_MS + 1000)
    scanner("a")
    ears.heard()
    store.reschedule("x", When("by", 1000))
    assert ears.heard() == []
    store.reschedule("x", When("at", NOW_MS + 999))
    assert ears.heard() == ["a"]


def test_bringing_back_what_is_dead_tells_it(store, listen, scanner):
    ears, shard_steps = listen("a"), store.steps()
    store.schedule_relayed("x")
    claimed, *_ = shard_steps.claim(1)
    shard_steps.nack("dead", claimed, reason="NO_ROUTE")
    scanner("a")
    ears.heard()
    store.reschedule("x", When("after", 0))
    assert ears.heard() == ["a"]


def test_a_call_that_is_refused_tells_nobody(store, listen, scanner):
    store.schedule("x", FAR_MS)
    scanner("a")
    ears = listen("a")
    with pytest.raises(ValueError, match="already scheduled"):
        store.schedule("x", 0)
    with pytest.raises(ValueError, match="before"):
        store.schedule("y", 10**15)
    assert ears.heard() == []


def test_a_cancel_tells_nobody(store, listen, scanner):
    store.schedule("x", NOW_MS + 500)
    scanner("a")
    ears = listen("a")
    store.entries.cancel("x")
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


def test_alone_it_is_told_itself_and_looks_when_it_has_published(store, listen, scanner):
    ears = listen("a")
    store.schedule_relayed("r", NOW_MS)
    ears.heard()
    shard_steps = scanner("a")
    store.schedule("x", NOW_MS + 500)
    assert ears.heard() == ["a"]
    shard_steps.ack(shard_steps.claim(5)[0])
    assert shard_steps.hand_over(asleep=ASLEEP).has_timer
    assert timer(store) == (NOW_MS + 500, "a")


def test_a_stand_in_gives_way_to_the_scanner_that_knows_the_next_entry(store, scanner):
    scanner("b")
    store.schedule_relayed("r", NOW_MS)
    store.schedule("x", NOW_MS + 500)
    shard_steps = scanner("a")
    shard_steps.ack(shard_steps.claim(5)[0])
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


# Rights.


@pytest.fixture
def without_publish(store):
    store.raw.execute_command("ACL", "SETUSER", "default", "-publish")
    yield
    store.raw.execute_command("ACL", "SETUSER", "default", "+publish")


@pytest.mark.usefixtures("without_publish")
def test_without_the_right_to_publish_everything_is_done_all_the_same(store, scanner):
    shard_steps = scanner("a")
    store.schedule("x", NOW_MS + 500)
    store.reschedule("x", When("at", NOW_MS))
    assert shard_steps.hand_over(asleep=ASLEEP).handed_over == 1
    shard_steps.leave()
    assert store.arrived() == ["x"]
