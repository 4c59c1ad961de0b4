"""Scanners in the store: which are alive, which wakes next, whom a script notifies."""

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Entries, emptied
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.counts import LiveScanner
from celery_delayq.errors import StoreDiffers, StoreError
from tests.store import requests
from tests.store.support import FAR_MS, NOW_MS

pytestmark = pytest.mark.core


# The names of live scanners; and whether a reader knows the store's layout.


HOUR_MS = 3_600_000


def alive(store):
    """Each scanner's name, and the age of its last heartbeat, in ms."""
    now_ms = store.entries.counts().now_ms
    told = {one.name: now_ms - one.seen_ms for one in store.entries.scanners()}
    assert len(told) == store.entries.counts().scanners
    return told


@pytest.mark.parametrize("seconds", [15, 900])
def test_each_is_named_with_its_last_heartbeat_for_however_long_that_counts(store, seconds):
    first, second = store.steps(alive=seconds), store.steps(alive=15)
    first.hand_over()
    store.set_ms(NOW_MS + 4000)
    second.hand_over()
    store.set_ms(NOW_MS + 5000)
    assert alive(store) == {first.name: 5000, second.name: 1000}


@pytest.mark.parametrize(("asleep", "counts"), [(4, 15), (20, 60)])
def test_a_heartbeat_counts_for_three_of_its_scanners_sleeps_at_least(store, asleep, counts):
    shard_steps = store.steps(alive=15)
    shard_steps.hand_over(asleep=asleep)
    store.set_ms(NOW_MS + counts * 1000)
    assert alive(store) == {shard_steps.name: counts * 1000}
    store.set_ms(NOW_MS + counts * 1000 + 1)
    assert alive(store) == {}


def test_a_heartbeat_tells_how_many_scanners_are_alive(store):
    dead, first, second = (store.steps(alive=seconds) for seconds in (1, 15, 15))
    dead.hand_over()
    store.set_ms(NOW_MS + 2000)
    assert first.hand_over().scanners == 1
    assert second.hand_over().scanners == 2
    assert second.hand_over().scanners == 0  # its heartbeat still counts


def test_a_scanner_counts_entries_and_not_the_other_scanners(store):
    """A thousand that come back at once would read a thousand names each."""
    shard_steps = store.steps(alive=15)
    shard_steps.hand_over()
    store.raw.config_resetstat()
    assert shard_steps.counts().scanners == 0
    assert "cmdstat_hmget" not in store.raw.info("commandstats")
    assert store.entries.counts().scanners == 1


def test_a_later_heartbeat_takes_the_place_of_the_one_before(store, shard_steps):
    shard_steps.hand_over()
    store.set_ms(NOW_MS + 3000)
    shard_steps.go_on_as(shard_steps.name)
    shard_steps.hand_over()
    store.set_ms(NOW_MS + 3500)
    assert alive(store) == {shard_steps.name: 500}


def test_a_scanner_that_leaves_is_forgotten(store, shard_steps):
    shard_steps.hand_over()
    shard_steps.leave()
    assert alive(store) == {}
    assert not store.raw.exists(store.keys["scanners"], store.keys["heartbeats"])


def test_a_killed_scanner_is_forgotten_after_an_hour(store):
    store.steps(alive=15).hand_over()
    store.set_ms(NOW_MS + HOUR_MS + 15_000)
    living = store.steps(alive=15)
    living.hand_over()
    now_ms = NOW_MS + HOUR_MS + 15_000
    told = b"%d:1:%d" % (now_ms, now_ms)  # the time, the newest format, and when it joined
    assert store.raw.hgetall(store.keys["heartbeats"]) == {living.name.encode(): told}
    assert store.raw.zrange(store.keys["scanners"], 0, -1) == [living.name.encode()]


def test_many_that_were_killed_are_forgotten_in_several_heartbeats(store, shard_steps):
    killed = {f"killed{step}": NOW_MS - 2 * HOUR_MS for step in range(9500)}
    store.raw.zadd(store.keys["scanners"], killed)
    store.raw.hset(store.keys["heartbeats"], mapping=killed)
    for _ in range(10):
        shard_steps.go_on_as(shard_steps.name)
        shard_steps.hand_over()
    assert store.raw.zcard(store.keys["scanners"]) == store.raw.hlen(store.keys["heartbeats"]) == 1


def test_a_scanner_that_died_before_the_clock_was_set_back_does_not_seem_alive(store):
    dead, living = store.steps(alive=15), store.steps(alive=15)
    dead.hand_over()
    living.hand_over()
    store.set_ms(NOW_MS - HOUR_MS)
    assert alive(store) == {}
    living.go_on_as(living.name)  # it gives its next one within seconds of its own clock
    living.hand_over()
    assert alive(store) == {living.name: 0}


def test_a_clock_set_back_by_less_than_a_heartbeat_counts_makes_nobody_seem_dead(store):
    shard_steps = store.steps(alive=15)
    shard_steps.hand_over()
    store.set_ms(NOW_MS - 14_000)
    assert list(alive(store)) == [shard_steps.name]


@pytest.mark.parametrize("spoil", ["hdel", "no number"])
def test_where_somebody_spoilt_the_heartbeats_a_scanner_is_alive_all_the_same(
    store, shard_steps, spoil
):
    shard_steps.hand_over()
    if spoil == "hdel":
        store.raw.delete(store.keys["heartbeats"])
    else:
        store.raw.hset(store.keys["heartbeats"], shard_steps.name, "somebody's")
    assert alive(store) == {shard_steps.name: 0}


def test_heartbeats_of_somebody_else_s_keep_no_scanner_from_its_work(store, shard_steps):
    shard_steps.hand_over()
    store.schedule("a")
    store.raw.delete(store.keys["heartbeats"])
    store.raw.set(store.keys["heartbeats"], "somebody's")
    assert shard_steps.hand_over().handed_over == 1
    shard_steps.leave()
    assert store.raw.get(store.keys["heartbeats"]) == b"somebody's"


def test_of_a_thousand_and_more_a_thousand_are_told(store):
    until = NOW_MS + 15_000
    store.raw.zadd(store.keys["scanners"], {f"host:{step}:x": until for step in range(1200)})
    assert len(alive(store)) == 1000


@pytest.mark.parametrize(
    ("name", "host"),
    [("web1:4711:9f3a2c01", "web1"), ("fe80::1:4711:9f3a2c01", "fe80::1"), ("odd", "odd")],
)
def test_a_scanner_s_name_begins_with_its_host(name, host):
    assert LiveScanner(name, 0, "1").host == host


def test_a_reader_of_the_same_layout_may_look_before_and_after_others_and_leaves_nothing(store):
    store.entries.check_membership()
    assert store.contents(all_keys=True).keys() == {b"test:clock"}
    store.schedule("a")
    store.entries.check_membership()


@pytest.mark.parametrize(
    ("field", "name", "theirs"), [("schema", "layout", "2"), ("shards", "delayq_shards", "3")]
)
def test_a_reader_of_another_layout_is_told(store, field, name, theirs):
    store.schedule("a")
    store.raw.hset(store.keys["meta"], field, theirs)
    with pytest.raises(StoreDiffers, match=f"the store has {name} '{theirs}', this process '1'"):
        Entries([store.scripts], store.membership).check_membership()


def test_meta_of_somebody_else_s_is_an_error(store):
    store.raw.set(store.keys["meta"], "somebody's")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        store.entries.check_membership()


# A store knows when it began, and a scanner notices that it is younger than the scanner.


DAY_MS = 86_400_000
SAID = (
    "this store began 5 min ago, its scanner 3 d ago: its Redis was emptied or lost its data, and "
    "tasks that waited before are gone; find out why, load a dump if you have one, and restart the "
    "workers to end this message"
)


def empty(store, ms):
    """Empty its Redis, whose clock says this by now."""
    store.raw.flushall()
    store.set_ms(ms)


def beat(shard_steps):
    shard_steps.go_on_as(shard_steps.name)  # its next step brings a heartbeat
    return shard_steps.hand_over()


def told(store):
    counts = store.entries.counts()
    wrong = emptied(counts.began_ms, counts.scanner_ms, counts.now_ms)
    return counts.began_ms, counts.scanner_ms, wrong and wrong.sentence


def test_a_store_began_with_the_first_process_that_joined_it(store):
    store.schedule("a", FAR_MS)
    store.set_ms(NOW_MS + DAY_MS)
    store.steps().hand_over()

    assert told(store) == (NOW_MS, NOW_MS + DAY_MS, None)
    assert [one.since_ms for one in store.entries.scanners()] == [NOW_MS + DAY_MS]


def test_a_new_store_is_as_old_as_the_scanner_that_joined_it_first(store):
    shard_steps = store.steps()
    shard_steps.hand_over()
    store.set_ms(NOW_MS + DAY_MS)
    beat(shard_steps)

    assert told(store) == (NOW_MS, NOW_MS, None)


@pytest.mark.parametrize("joins_first", ["scanner", "caller"])
def test_a_store_that_was_emptied_is_younger_than_its_scanner(store, caplog, joins_first):
    old, began_ms = store.steps(), NOW_MS + 3 * DAY_MS
    old.hand_over()
    store.schedule("a", FAR_MS)

    empty(store, began_ms)
    if joins_first == "caller":
        store.schedule("b", FAR_MS)
    beat(old)
    store.set_ms(began_ms + 300_000)
    beat(old)

    assert told(store) == (began_ms, NOW_MS, SAID)
    [line] = [one for one in caplog.records if one.levelname == "ERROR"]
    assert ": this store began 0 s ago, its scanner 3 d ago: " in line.getMessage()
    # Emptied once more: the log has it already.
    empty(store, began_ms + 300_000)
    beat(old)
    assert told(store)[:2] == (began_ms + 300_000, NOW_MS)
    assert len([one for one in caplog.records if one.levelname == "ERROR"]) == 1


def test_the_message_ends_when_the_last_older_scanner_has_restarted(store):
    first, second = store.steps(), store.steps()
    first.hand_over()
    second.hand_over()
    empty(store, NOW_MS + DAY_MS)
    beat(first)
    beat(second)

    for old in (first, second):
        assert told(store)[2]
        old.leave()
        store.steps().hand_over()
    assert told(store) == (NOW_MS + DAY_MS, NOW_MS + DAY_MS, None)


def test_the_age_of_a_store_from_before_is_unknown(store, caplog):
    shard_steps = store.steps()
    shard_steps.hand_over()
    # An earlier process wrote the rest, and no time.
    store.raw.hdel(store.keys["meta"], "began")
    store.raw.hset(store.keys["heartbeats"], "old", f"{NOW_MS}:1")
    store.raw.zadd(store.keys["scanners"], {"old": NOW_MS + 15_000})
    requests.join(store)

    assert told(store) == (None, NOW_MS, None)
    assert {one.name: one.since_ms for one in store.entries.scanners()}["old"] is None
    assert caplog.records == []


# The scripts notify one scanner, once, and only if it would otherwise be late.


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


# One scanner wakes for the next entry; no other scanner relies on one that is gone.


@pytest.fixture
def first(store):
    return store.steps()


@pytest.fixture
def second(store):
    return store.steps()


def is_up(shard_steps, **options) -> bool:
    """Whether a scanner that looks is the one that wakes for the next entry."""
    return shard_steps.hand_over(asleep=ASLEEP, **options).has_timer


def up_at(store) -> int:
    return timer(store)[0]


@both_kinds
def test_the_first_that_looks_is_up_for_the_head_and_the_others_are_not(store, first, second, put):
    getattr(store, put)("a", NOW_MS + 1000)
    assert [is_up(one) for one in (first, second, first)] == [True, False, True]
    assert up_at(store) == NOW_MS + 1000


def test_with_nothing_near_a_scanner_is_up_when_it_looks_next(store, first, second):
    """It looks at the end of its safety interval, and announces only that."""
    assert is_up(first)
    assert up_at(store) == NOW_MS + 5000
    store.schedule("a", FAR_MS)
    assert not is_up(second)
    assert up_at(store) == NOW_MS + 5000


def test_a_scanner_that_may_not_look_again_promises_nothing(store, first):
    store.schedule("a", NOW_MS + 1000)
    before = timer(store)
    assert not first.hand_over().has_timer
    assert timer(store) == before


def test_a_scanner_that_learns_of_an_earlier_head_is_up_for_it(store, first, second):
    store.schedule("a", NOW_MS + 1000)
    is_up(first)
    # As after a lost notification: the first one got none.
    store.schedule("b", NOW_MS + 900)
    store.raw.hset(store.keys["meta"], "timer", f"{NOW_MS + 1000}:{first.name}")
    assert is_up(second)
    assert not is_up(first)


def test_a_later_head_stays_with_the_one_that_was_up_for_the_first(store, first, second):
    store.schedule("a", NOW_MS + 1000)
    store.schedule("b", NOW_MS + 2000)
    is_up(first)
    store.set_ms(NOW_MS + 1000)
    assert is_up(first)
    assert not is_up(second)


def test_a_scanner_in_the_midst_of_a_backlog_is_up(store):
    """It takes the next batch at once, so no other scanner has to wake."""
    for step in range(3):
        store.schedule(f"a{step}", NOW_MS - 10_000 + step)
    assert is_up(store.steps(batch_size=1))
    assert up_at(store) == NOW_MS
    assert not is_up(store.steps(batch_size=1))


@pytest.mark.parametrize("hears", [True, False], ids=["another listens", "the other is deaf"])
def test_when_the_one_that_is_up_leaves_another_or_all_are_told(
    store, listen, first, second, hears
):
    is_up(first)
    is_up(second)
    ears = listen(*[second.name] * hears)
    first.leave()
    assert ears.heard() == [second.name if hears else ALL]
    assert timer(store) is None or not hears
    assert is_up(second)


def test_when_one_that_is_not_up_leaves_nobody_is_told(store, first, second):
    is_up(first)
    is_up(second)
    store.raw.config_resetstat()
    second.leave()
    assert "cmdstat_publish" not in store.raw.info("commandstats")
    assert is_up(first)


@pytest.mark.parametrize("alive", [True, False])
def test_only_a_living_scanner_stands_in(store, first, second, alive):
    is_up(second)
    store.set_ms(NOW_MS + (14_000 if alive else 16_000))
    store.schedule_relayed("a", NOW_MS)
    is_up(first)
    assert timer(store)[1] == (second.name if alive else first.name)


def test_a_scanner_that_is_overdue_is_taken_for_dead(store, first, second):
    store.schedule_relayed("a", NOW_MS + 1000)
    is_up(first)
    store.set_ms(NOW_MS + 1100)
    assert not is_up(second, relay_in=1.0)
    store.set_ms(NOW_MS + 1101)
    assert is_up(second, relay_in=1.0)


def test_after_a_clock_set_back_a_promise_for_later_binds_nobody(store, first, second):
    is_up(first)
    store.set_ms(NOW_MS - 3_600_000)
    store.schedule("b", NOW_MS - 3_600_000 + 1000)
    # No scanner with that name listens, so the script notified all.
    assert is_up(second)
