"""One scanner serves all shards in turn: in virtual time, and on a real Redis."""

import math
import threading
import uuid

import pytest

from celery_delayq.core.handover.contact import Away
from celery_delayq.core.handover.scanner import Scanner
from celery_delayq.core.hooks import Hooks
from celery_delayq.core.store.keys import Keys, shard_of
from celery_delayq.errors import BrokerDown, StoreUnavailable
from tests.scanner.fakes import HOUR_MS, START_MS, FakeEngine, FakeRelay
from tests.support.waiting import eventually

FOREVER = 300  # seconds of safety interval: only a notification can wake the scanner
SHARDS = 3


@pytest.fixture
def sharded(world):
    """A world whose scanner has three shards, a log of its calls, and the next answers."""
    made = world(safety_interval=5.0)
    made.asked, made.steps_by_shard, made.relays, made.said = [], [], [], []
    for number in range(SHARDS):
        shard_steps, relay = FakeEngine(made, 10), FakeRelay(made)
        shard_steps.on_move = lambda number=number: made.asked.append(number)
        relay.steps = shard_steps
        relay.batch = relay_of(shard_steps, relay, relay.batch)
        made.steps_by_shard.append(shard_steps)
        made.relays.append(relay)
    wait = made.wakeup.wait

    def told(seconds):
        said = made.said.pop(0) if made.said else set()
        if seconds > 0 and not said:
            wait(seconds)
        return said

    made.wakeup.wait = told
    made.scanner = Scanner(made.relays, made.wakeup, safety_interval=5.0, lease=30.0, hooks=Hooks())
    return made


def relay_of(shard_steps, relay, batch):
    def batched(stopping):
        own, relay._world.steps = relay._world.steps, shard_steps
        try:
            return batch(stopping)
        finally:
            relay._world.steps = own

    return batched


def test_each_shard_is_looked_at_and_left_and_the_next_due_time_of_any_ends_the_wait(sharded):
    sharded.steps_by_shard[1].due = [START_MS + 700]
    sharded.steps_by_shard[2].due = [START_MS + 900]
    sharded.run(waits=1)
    assert sorted(sharded.asked) == [0, 1, 2]
    assert sharded.waits == [pytest.approx(0.7, abs=0.01)]
    for shard_steps in sharded.steps_by_shard:
        [(asleep, relay_in)] = shard_steps.asked
        assert 4.0 <= asleep <= 5.0
        assert relay_in == 0
    assert sharded.log.count("leave") == SHARDS


def test_shards_without_a_due_task_are_left_alone(sharded):
    sharded.steps_by_shard[1].due = [START_MS + 700]
    sharded.run(waits=2)
    assert sharded.asked[SHARDS:] == [1]
    assert sharded.steps_by_shard[1].moved == [START_MS + 700]


def test_the_backlog_of_a_shard_holds_up_no_other(sharded):
    sharded.steps_by_shard[0].due = [START_MS - 1] * 1000
    sharded.steps_by_shard[1].due = [START_MS - 1]
    sharded.steps_by_shard[2].relay = [START_MS - 1]
    sharded.run(waits=1)
    assert len(sharded.steps_by_shard[0].moved) == 1000
    # In the first round, not after the other shard's hundred batches.
    assert sorted(sharded.asked[:SHARDS]) == [0, 1, 2]
    assert sharded.relays[2].published == [START_MS - 1]


def test_a_scanner_amid_a_backlog_hears_of_another_shard(sharded):
    sharded.steps_by_shard[0].due = [START_MS - 1] * 1000
    sharded.steps_by_shard[1].due = [START_MS + HOUR_MS]

    def come():
        sharded.asked.append(0)
        if len(sharded.asked) == 20:
            sharded.steps_by_shard[1].due = [START_MS - 1]
            sharded.said = [{1}]

    sharded.steps_by_shard[0].on_move = come
    sharded.run(waits=1)
    at = [place for place, number in enumerate(sharded.asked) if number == 1]
    assert at[1] <= 22


def test_a_scanner_notified_of_a_shard_looks_at_that_one(sharded):
    sharded.said = [set(), {2}]
    sharded.run(waits=1)
    assert sharded.asked[SHARDS:] == [2]


def test_a_broker_that_is_away_is_asked_once_for_all_of_them(sharded):
    asked = []

    def away(_):
        asked.append(sharded.monotonic())
        raise BrokerDown("refused")

    for shard_steps, relay in zip(sharded.steps_by_shard, sharded.relays, strict=True):
        shard_steps.relay = [START_MS - 1]
        relay.batch = away
    sharded.run(waits=1)
    assert len(asked) == 1


# On a real Redis.


def in_each_shard(count=1):
    """Ids, *count* in each shard."""
    found = {shard: [] for shard in range(SHARDS)}
    while min(map(len, found.values())) < count:
        task_id = str(uuid.uuid4())
        found[shard_of(task_id, SHARDS)].append(task_id)
    return [one for ids in found.values() for one in ids[:count]]


@pytest.mark.parametrize("count", [1, 3])
def test_a_task_of_any_shard_leaves_on_time(house, count):
    made = house(delayq_safety_interval=FOREVER, delayq_shards=SHARDS)
    made.start(count)
    shards = [Keys("delayq", shard, SHARDS) for shard in range(SHARDS)]
    made.await_looks(shards, count)
    for task_id in in_each_shard(2):
        due = made.seconds() + 0.05
        made.task.apply_async(task_id=task_id, delayq_at=due)
        arrived, at = made.next_arrival()
        assert arrived == task_id
        assert at >= due


@pytest.fixture
def apart(sharded):
    """The first shard alone on a node, which is away; the others on another one."""
    sharded.steps_by_shard[0].node = "away", 1

    def is_away():
        sharded.asked.append(0)
        raise StoreUnavailable("hand_over", "nobody answers")

    sharded.steps_by_shard[0].on_move = is_away
    sharded.scanner._away._watch = lambda _shards: None  # no thread of a virtual time
    return sharded


def test_while_a_node_is_away_the_shards_of_others_are_served(apart):
    apart.steps_by_shard[1].due = [START_MS, START_MS + 700]
    apart.steps_by_shard[2].due = [START_MS + 1400]
    apart.run(waits=3)
    assert apart.asked.count(0) == 1
    assert apart.steps_by_shard[1].moved == [START_MS, START_MS + 700]
    assert apart.steps_by_shard[2].moved == [START_MS + 1400]
    assert "rest" not in apart.log


def test_a_message_does_not_make_the_scanner_wait_for_a_node_that_is_away(apart):
    apart.said = [set(), {0, 1}]
    apart.run(waits=2)
    assert apart.asked.count(0) == 1


def test_a_node_that_is_away_is_met_by_one_of_its_shards(apart):
    apart.steps_by_shard[1].node = apart.steps_by_shard[0].node
    apart.steps_by_shard[1].on_move = apart.steps_by_shard[0].on_move
    apart.run(waits=1)
    assert sorted(apart.asked) == [0, 2]
    assert len(apart.scanner._away.shards) == 2


def test_a_shard_that_moved_to_a_node_that_is_away_as_well_is_left_out(apart):
    is_away = apart.steps_by_shard[0].on_move

    def moves():
        apart.steps_by_shard[0].node = "away", 2
        is_away()

    apart.steps_by_shard[0].on_move = moves
    apart.run(waits=1)
    assert apart.asked.count(0) == 1


def test_a_node_that_answers_but_refuses_is_tried_and_logged_less_and_less_often(apart, caplog):
    apart.steps_by_shard[1].due = [START_MS + 100 * step for step in range(12)]
    shard, wait = apart.scanner._shards[0], apart.wakeup.wait
    event = Never()
    away = Away(event, lambda: None)
    shard.steps.counts = lambda: None

    def answers(seconds):
        if seconds > 0 and shard.up_at == math.inf:
            away._watch([shard])
        return wait(seconds)

    apart.wakeup.wait = answers
    apart.run(waits=10)
    assert apart.asked.count(0) == 10
    assert len([one for one in caplog.records if one.levelname == "WARNING"]) < 6
    assert min(event.waits[1:]) >= 0.5

    apart.steps_by_shard[0].on_move = lambda: None
    apart.scanner._stopping = threading.Event()
    apart.run(waits=len(apart.waits) + 1)
    assert shard.pauses.next() <= 0.5


def test_a_shard_is_watched_once(sharded):
    made, watched = Away(Never(), lambda: None), []
    made._watch = watched.append
    one, two, _ = sharded.scanner._shards
    made.add([one])
    made.add([one, two])
    eventually(lambda: len(watched) == 2)
    assert sorted(map(len, watched)) == [1, 1]


def test_an_answer_brings_a_shard_back(apart):
    apart.run(waits=1)
    apart.steps_by_shard[0].on_move = lambda: apart.asked.append(0)
    apart.steps_by_shard[0].counts = lambda: None
    back = Away(Never(), lambda: apart.say("interrupt"))
    back._watch([apart.scanner._shards[0]])
    assert apart.log[-1] == "interrupt"
    apart.scanner._stopping = threading.Event()
    apart.run(waits=len(apart.waits) + 1)
    assert apart.asked.count(0) == 2
    assert not apart.scanner._away.shards


def test_if_the_only_node_is_away_the_scanner_pauses(sharded):
    rests = []
    sharded.wakeup.on_rest = lambda: rests.append(sharded.scanner._stopping.set())

    def is_away():
        raise StoreUnavailable("hand_over", "nobody answers")

    for shard_steps in sharded.steps_by_shard:
        shard_steps.on_move = is_away
    sharded.run(waits=2)
    assert len(rests) == 1
    assert not sharded.scanner._away.shards


class Never:
    """An event that is never set, and whose wait takes no time."""

    def __init__(self):
        self.waits = []

    def wait(self, seconds):
        self.waits.append(seconds)
        return False
