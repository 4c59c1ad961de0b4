"""Over several shards any id and any key work: a key's shard has its task, and each id is found."""

import pytest
from celery import states
from celery.result import AsyncResult

from celery_delayq import Item, Outcome, State
from celery_delayq.core.store.keys import Keys, shard_of
from celery_delayq.errors import AlreadyScheduled, InFlight
from tests.app.support import FAR, LONG_AGO, redis_ms
from tests.support.places import at
from tests.support.waiting import eventually

pytestmark = pytest.mark.operations

SHARDS = 3
# The keys of three shards, and an id of each shard that is not its own.
EACH_KEY = [
    next(f"key-{n}" for n in range(99) if shard_of(f"key-{n}", SHARDS) == at) for at in range(3)
]


def stray(key: str, also: int = 0) -> str:
    """An id that belongs to another shard than a key."""
    wanted = (shard_of(key, SHARDS) + 1 + also) % SHARDS
    return next(f"{key}-id-{n}" for n in range(99) if shard_of(f"{key}-id-{n}", SHARDS) == wanted)


@pytest.fixture
def app(delayq_app, redis_server, redis):
    return delayq_app(redis_server.url(), redis_server.url(1), delayq_shards=SHARDS)


@pytest.fixture
def where(redis):
    """The shards that have an entry of an id."""

    def found(task_id):
        keys = [Keys("delayq", shard, SHARDS)["records"] for shard in range(SHARDS)]
        return [shard for shard, key in enumerate(keys) if redis.hexists(key, task_id)]

    return found


# The shard of a task.


@pytest.mark.parametrize("key", EACH_KEY)
def test_a_task_with_an_id_of_the_caller_lies_on_the_shard_of_its_key(delayq, add, where, key):
    add.s(1).set(task_id=stray(key), delayq_key=key).delay_until(FAR)
    assert where(stray(key)) == [shard_of(key, SHARDS)]


@pytest.mark.parametrize("key", EACH_KEY)
def test_a_held_key_is_read_and_freed_on_its_own_shard(delayq, redis, key):
    keys = Keys("delayq", shard_of(key, SHARDS), SHARDS)
    redis.hset(keys["holders"], key, b"left\xff1.2")
    redis.zadd(keys["held"], {key: FAR * 1000})

    assert delayq.holder(key=key).id == "left"
    assert delayq.free(key=key) is Outcome.DONE
    assert delayq.holder(key=key) is None


@pytest.mark.parametrize("key", EACH_KEY)
@pytest.mark.parametrize(
    "schedule",
    [
        lambda delayq, add, key: delayq.schedule(add.s(1), at=FAR, key=key).id,
        lambda _, add, key: add.s(1).set(delayq_key=key).delay_until(FAR).id,
        lambda delayq, add, key: delayq.schedule_many(add, [Item((1,), key=key)], at=FAR).ids[0],
        lambda delayq, add, key: delayq.schedule_many(
            add.s().set(delayq_key=key), [Item((1,))], at=FAR
        ).ids[0],
    ],
    ids=["schedule", "signature", "item", "bulk"],
)
def test_an_id_that_is_made_for_a_key_belongs_to_the_keys_shard(delayq, add, where, schedule, key):
    for _ in range(5):  # of ids drawn at random, one in 243 rows would pass
        task_id = schedule(delayq, add, key)
        assert where(task_id) == [shard_of(task_id, SHARDS)] == [shard_of(key, SHARDS)]
        assert delayq.cancel(task_id)


def test_a_bulk_with_many_keys_and_ids_is_found_by_all_of_them(delayq, add):
    items = [Item((n,), key=f"k{n}", task_id=f"t{n}" if n % 2 else None) for n in range(60)]
    bulk = delayq.schedule_many(add, items, at=FAR)

    assert bulk.scheduled == 60
    for number, task_id in enumerate(bulk.ids):
        assert delayq.get(task_id).args == delayq.get(key=f"k{number}").args == (number,)
    again = delayq.schedule_many(add, items, at=FAR)
    assert again.refused.keys() == set(range(60))
    assert {type(one) for one in again.refused.values()} == {AlreadyScheduled}


def test_a_bulk_has_an_id_once_whatever_its_keys(delayq, add, where):
    one, other = EACH_KEY[:2]
    items = [Item((1,), key=one, task_id="twice"), Item((2,), key=other, task_id="twice")]
    bulk = delayq.schedule_many(add, items, at=FAR)
    assert (bulk.scheduled, list(bulk.refused)) == (1, [1])
    assert where("twice") == [shard_of(one, SHARDS)]


# By id.


@pytest.fixture(params=EACH_KEY)
def task_id(request, add):
    """A task with a key, whose id belongs to another shard."""
    key = request.param
    add.apply_async((1,), task_id=stray(key), delayq_at=FAR, delayq_key=key, delayq_tags=["t"])
    return stray(key)


def test_a_task_on_its_key_s_shard_is_read_by_its_id(app, delayq, task_id):
    assert delayq.get(task_id).args == (1,)
    assert delayq.state(task_id) is State.SCHEDULED
    assert delayq.result(task_id).due.timestamp() == FAR
    assert app.AsyncResult(task_id).state == "SCHEDULED"


def test_a_task_on_its_key_s_shard_is_changed_by_its_id(delayq, redis, task_id):
    assert delayq.reschedule(task_id, FAR + 5) is Outcome.DONE
    assert delayq.reschedule(task_id, FAR + 6, if_due=FAR) is Outcome.UNCHANGED
    assert delayq.edit(task_id, args=[2]) is Outcome.DONE
    assert delayq.get(task_id).args == (2,)
    assert delayq.retry(task_id) is delayq.remove(task_id) is Outcome.UNCHANGED
    assert delayq.run_now(task_id) is Outcome.DONE
    assert delayq.hand_over() == 1
    assert redis.llen("celery") == 1


def test_a_task_that_has_left_is_known_by_its_id(delayq, task_id):
    assert delayq.handed_over(task_id) is None
    delayq.run_now(task_id)
    delayq.hand_over()
    assert delayq.handed_over(task_id) is not None
    assert delayq.cancel(task_id) is Outcome.HANDED_OVER
    assert delayq.edit(task_id, args=[2]) is Outcome.HANDED_OVER
    assert delayq.reschedule(task_id, FAR) is Outcome.HANDED_OVER
    assert delayq.get(task_id) is delayq.state(task_id) is None


def test_a_task_cancelled_by_its_id_is_revoked_and_nothing_stays_owed(app, delayq, redis, task_id):
    assert delayq.cancel(task_id) is Outcome.DONE
    assert AsyncResult(task_id, app=app).state == states.REVOKED
    assert delayq.cancel(task_id) is Outcome.NOT_FOUND
    assert sum(redis.zcard(Keys("delayq", n, SHARDS)["outbox"]) for n in range(SHARDS)) == 0


def test_a_task_that_left_without_a_key_and_is_back_with_one_waits(delayq, add):
    """The tombstone on its own shard does not end the search."""
    key = EACH_KEY[0]
    add.apply_async((1,), task_id=stray(key), delayq_at=LONG_AGO)
    delayq.hand_over()
    assert delayq.cancel(stray(key)) is Outcome.HANDED_OVER
    add.apply_async((2,), task_id=stray(key), delayq_at=FAR, delayq_key=key)

    assert delayq.state(stray(key)) is State.SCHEDULED
    assert delayq.handed_over(stray(key)) is None
    assert delayq.reschedule(stray(key), FAR + 1) is Outcome.DONE
    assert delayq.cancel(stray(key)) is Outcome.DONE


@pytest.mark.parametrize("cancelled_first", [True, False])
def test_the_latest_departure_is_reported_from_any_shard(delayq, redis, add, cancelled_first):
    key = EACH_KEY[0]
    entries = delayq.services.entries

    def cancelled():  # on the shard of the key
        add.apply_async((2,), task_id=stray(key), delayq_at=FAR, delayq_key=key)
        assert delayq.cancel(stray(key))

    def handed_over():  # on the shard of the id
        add.apply_async((1,), task_id=stray(key), delayq_at=LONG_AGO)
        delayq.hand_over()

    first, then = (cancelled, handed_over) if cancelled_first else (handed_over, cancelled)
    first()
    left_ms = entries.departure(stray(key)).when_ms
    eventually(lambda: redis_ms(redis) > left_ms + 1)
    then()

    assert (entries.handed_over_ms(stray(key)) is None) != cancelled_first
    assert (entries.cancelled_ms_ago(stray(key)) is None) == cancelled_first


def test_a_dead_task_on_its_key_s_shard_is_found_by_its_id(delayq, redis, add):
    key = EACH_KEY[1]
    add.apply_async((1,), task_id=stray(key), delayq_at=LONG_AGO, delayq_key=key)
    records = Keys("delayq", shard_of(key, SHARDS), SHARDS)["records"]
    redis.hset(records, stray(key), b"? of another program")
    delayq.hand_over()
    assert delayq.counts().dead == 1
    assert delayq.remove(stray(key)) is Outcome.DONE


# An id waits once.


@pytest.mark.parametrize("conflict", ["reject", "keep", "replace"])
def test_an_id_that_waits_without_a_key_does_not_wait_with_one_too(delayq, add, where, conflict):
    key = EACH_KEY[0]
    add.apply_async((1,), task_id=stray(key), delayq_at=FAR)
    with pytest.raises(AlreadyScheduled):
        add.apply_async(
            (2,), task_id=stray(key), delayq_at=FAR, delayq_key=key, delayq_conflict=conflict
        )
    assert where(stray(key)) == [shard_of(stray(key), SHARDS)]
    assert delayq.get(key=key) is None


def test_an_id_that_is_being_published_is_told(delayq_app, redis_server, redis):
    app = delayq_app(redis_server.url(3), delayq_url=redis_server.url(), delayq_shards=SHARDS)
    key = EACH_KEY[0]
    at(app.delayq, "leased", stray(key))
    with pytest.raises(InFlight):
        app.send_task("t", task_id=stray(key), delayq_at=FAR, delayq_key=key)


def test_with_the_same_key_an_id_is_replaced_and_kept_as_ever(delayq, add, task_id):
    key = task_id.partition("-id")[0]
    same = {"task_id": task_id, "delayq_key": key, "delayq_at": FAR + 1}
    with pytest.raises(AlreadyScheduled):
        add.apply_async((2,), **same)
    add.apply_async((3,), **same, delayq_conflict="keep")
    assert delayq.get(task_id).args == (1,)
    add.apply_async((4,), **same, delayq_conflict="replace")
    assert delayq.get(task_id).args == (4,)
    assert delayq.counts().scheduled == 1


def test_a_replaced_task_is_revoked_for_any_pair_of_ids(app, delayq, redis, add, task_id):
    key = task_id.partition("-id")[0]
    other = delayq.schedule(
        add.s(2).set(task_id=stray(key, 1)), at=FAR, key=key, conflict="replace"
    )
    assert list(delayq.tasks()) == [delayq.get(other)]
    assert AsyncResult(task_id, app=app).state == states.REVOKED
    assert delayq.state(task_id) is None
    assert sum(redis.zcard(Keys("delayq", n, SHARDS)["outbox"]) for n in range(SHARDS)) == 0


# Many at once.


@pytest.fixture
def many(delayq, add):
    """Thirty tasks, a third of them with a key and an id of another shard."""
    ids = []
    for number in range(30):
        key = f"many-{number}"
        keyed = {"task_id": stray(key), "delayq_key": key} if number % 3 == 0 else {}
        tags = ["even" if number % 2 == 0 else "odd"]
        at = FAR + (number * 7) % 30
        ids.append(add.apply_async((number,), delayq_at=at, delayq_tags=tags, **keyed).id)
    return ids


def test_a_limit_is_of_all_shards_together(delayq, many):
    assert delayq.select(all=True, limit=7).cancel() == 7
    assert delayq.counts().scheduled == 23
    assert len(list(delayq.select(tag=["odd", "even"], limit=20))) == 20


def test_a_selection_goes_on_from_its_cursor(delayq, many):
    chosen, seen = delayq.select(all=True), []
    for task in chosen:
        seen.append(task.id)
        if len(seen) == 12:
            break
    rest = [one.id for one in delayq.select(all=True, cursor=chosen.cursor)]
    assert sorted(seen + rest) == sorted(many)


def test_pauses_hold_the_tasks_of_all_shards(delayq, many):
    delayq.pause(task="add")
    delayq.select(all=True).run_now()
    delayq.select(all=True).reschedule(after=-1)
    assert delayq.hand_over() == 0
    assert {one.state for one in delayq.tasks()} == {State.PAUSED}
    assert [one.task for one in delayq.pauses()] == ["add"]
    assert delayq.resume(task="add")
    assert delayq.hand_over() == 30


# One sentence.


@pytest.mark.parametrize(("first", "then"), [(1, 3), (3, 1), (3, 2)])
def test_the_store_s_number_decides_and_a_setting_counts_for_a_new_store(
    delayq_app, url, redis, first, then
):
    one = delayq_app(url, delayq_shards=first)
    one.send_task("t", task_id="a", delayq_at=FAR)
    other = delayq_app(url, delayq_shards=then)

    other.send_task("t", task_id="b", delayq_at=FAR, delayq_key="k")

    assert {task.id for task in one.delayq.tasks()} == {"a", "b"}
    assert one.delayq.get(key="k").id == "b"
    assert other.delayq.services.settings.shards == first
    redis.flushall()
    other.conf.delayq_prefix = "another"
    other.send_task("t", task_id="c", delayq_at=FAR)
    assert redis.hget("{another:0}:meta", "shards") == str(then).encode()
