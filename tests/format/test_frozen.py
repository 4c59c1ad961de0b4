"""Data that earlier versions left, in Redis and in dumps, is treated like this version's own."""

import contextlib
import json
from pathlib import Path

import pytest

from celery_delayq import Outcome
from celery_delayq.contrib.care.lines import FORMAT
from celery_delayq.core.clock import monotonic
from celery_delayq.core.store.keys import SCHEMA
from celery_delayq.errors import UnreadableRecord
from tests.app.support import FAR, lists
from tests.format import keys
from tests.format.filling import DUE, WAITING, app_of
from tests.support.waiting import PATIENCE, eventually

HERE = Path(__file__).parent
STORES = sorted(HERE.glob("v*.json"))
DUMPS = sorted(HERE.glob("v*.dump.jsonl"))

CANVASES = {"chain", "group"}
UNREADABLE = {"of the future", "without a record"}
# Fields that differ in every dump.
OF_THE_MOMENT = ("made_by", "time_ms")


@pytest.fixture
def redis(redis_server):
    redis_server.empty()
    with redis_server.client() as client:
        yield client


@pytest.fixture(params=STORES, ids=lambda path: path.stem)
def frozen(request, redis):
    """A store as a version left it."""
    keys.write(redis, json.loads(request.param.read_text("ascii")))


@pytest.fixture
def delayq(redis_server, redis, frozen):
    with contextlib.closing(app_of(redis_server.url())) as delayq:
        yield delayq


def lines_of(path):
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


@pytest.fixture
def told(request, frozen):
    """The dump made of the store when it was frozen: id -> line."""
    name = request.node.callspec.params["frozen"].stem
    return {line["id"]: line for line in lines_of(HERE / f"{name}.dump.jsonl") if "id" in line}


def by_state(told, *states):
    return {task_id for task_id, line in told.items() if line["state"] in states}


def drain(delayq):
    """Deliver every task that is due by now."""

    def is_done():
        delayq.hand_over()
        counts = delayq.counts()
        return not (counts.overdue - counts.refused or counts.in_flight)

    eventually(is_done)


def queues(redis):
    return {key: found for key, found in lists(redis).items() if not key.startswith(b"{")}


def test_the_format_of_this_version_is_frozen():
    assert HERE / f"v{SCHEMA}.json" in STORES
    assert HERE / f"v{FORMAT}.dump.jsonl" in DUMPS
    assert all(path.stat().st_size < 200_000 for path in (*STORES, *DUMPS))


def test_a_frozen_store_has_one_of_each(told):
    assert {*WAITING, *DUE} <= told.keys()
    for state in ("waiting", "paused", "refused", "in_flight", "dead", "unreadable", "lost"):
        assert by_state(told, state), state
    fields = {name for line in told.values() for name in line}
    assert {"key", "tags", "grace_ms", "expires_after_ms", "run_now", "may_be_delivered"} <= fields


def test_a_frozen_store_is_listed(delayq, told):
    waiting = [one.id for one in delayq.tasks()]
    assert sorted(waiting) == sorted(by_state(told, "waiting", "paused", "refused"))
    assert [one.due for one in delayq.tasks()] == sorted(one.due for one in delayq.tasks())


def test_each_task_of_a_frozen_store_is_read_with_its_arguments(delayq, told):
    # The queue of the refused task is paused.
    states = {"waiting": "SCHEDULED", "refused": "PAUSED", "paused": "PAUSED", "dead": "DEAD"}
    for task_id in told.keys() - UNREADABLE:
        task = delayq.get(task_id)

        assert task.state.value == states.get(told[task_id]["state"], "IN_FLIGHT"), task_id
        assert (task.due.timestamp() * 1000, task.key, [*task.tags]) == (
            told[task_id]["due_ms"], told[task_id].get("key", ""), told[task_id].get("tags", []),
        )  # fmt: skip
        assert isinstance(task.args, tuple), task_id
    assert delayq.get("pickle").args == (1, "ü")
    assert delayq.get("compressed").kwargs == {"k": [None]}
    assert delayq.get("edited").args == (2,)
    assert delayq.get("protocol 1").task == "shop.remind"
    assert delayq.get(key="order:42").id == "key"


def test_an_unreadable_record_is_left_alone(delayq, redis):
    name = "{delayq:0}:records"
    before = redis.hget(name, "of the future")

    for step in (delayq.get, delayq.cancel, delayq.run_now):
        with pytest.raises(UnreadableRecord):
            step("of the future")
    delayq.hand_over()

    assert redis.hget(name, "of the future") == before
    assert delayq.remove("of the future")


def test_a_check_finds_nothing_in_a_frozen_store_but_what_was_spoilt(delayq):
    found = {(one.kind, one.id) for one in delayq.check()}
    assert found == {
        ("unreadable_record", "of the future"),
        ("place_without_record", "without a record"),
    }


def test_each_task_of_a_frozen_store_that_has_not_left_is_cancelled(delayq, told):
    for task_id in told.keys() - UNREADABLE:
        uncertain = told[task_id].get("may_be_delivered")
        assert delayq.cancel(task_id) is (Outcome.UNCERTAIN if uncertain else Outcome.DONE), task_id
    assert {one.id for one in delayq.select(all=True)} == set()
    assert delayq.counts().dead == len(UNREADABLE)


def test_each_task_of_a_frozen_store_is_moved(delayq, told):
    for number, task_id in enumerate(sorted(told.keys() - UNREADABLE)):
        assert delayq.reschedule(task_id, FAR + number) in (Outcome.DONE, Outcome.UNCERTAIN)
        assert delayq.get(task_id).due.timestamp() == FAR + number
    assert delayq.counts().dead == len(UNREADABLE)


def test_each_task_of_a_frozen_store_but_a_canvas_is_edited(delayq, told):
    for task_id in told.keys() - UNREADABLE - CANVASES:
        done = delayq.edit(task_id, args=("new",), priority=5, expires=9)
        assert done in (Outcome.DONE, Outcome.UNCERTAIN), task_id
        assert delayq.get(task_id).args == ("new",)


def test_tasks_of_a_frozen_store_are_selected(delayq, told):
    def ids(**by):
        return {one.id for one in delayq.select(**by)}

    tagged = {task_id for task_id, line in told.items() if "user:7" in line.get("tags", ())}
    assert ids(tag="user:7") == tagged
    assert ids(task="shop.bulk") == {f"bulk-{number}" for number in range(5)}
    assert ids(queue="mail") == {"parked", "parked too", "run now", "other queue"}
    assert ids(state="DEAD") == {"dead", "dead key", *UNREADABLE}
    assert delayq.select(all=True).count() == len(told) - len(UNREADABLE)


def test_due_tasks_are_handed_over_each_in_its_way(delayq, redis):
    for pause in delayq.pauses():
        delayq.resume(queue=pause.queue, task=pause.task)
    drain(delayq)

    messages = {
        json.loads(one)["headers"]["id"]: (key.decode(), json.loads(one)["headers"])
        for key, found in queues(redis).items()
        for one in found
    }
    places = {task_id: place for task_id, (place, _) in messages.items()}
    expected = {task_id: one.get("exchange", "celery") for task_id, one in DUE.items()}
    assert places == {
        **expected,
        "handed over": "celery", "handed over under key": "celery",
        "in flight": "news", "in flight key": "news",
        "parked": "mail", "parked too": "mail", "run now": "mail",
        "comes back": "celery", "comes back later": "celery",
    }  # fmt: skip
    assert messages["in flight"][1]["delayq_redelivered"] is True
    assert messages["in flight"][1]["delayq_attempt"] == 2


def test_a_refused_task_is_tried_again_and_dead_ones_are_retried_or_removed(delayq, redis):
    delayq.resume(queue="celery")
    assert delayq.get("refused").attempts == 1
    assert delayq.run_now("refused")
    assert delayq.retry("dead")
    assert delayq.remove("dead key") is Outcome.UNCERTAIN

    drain(delayq)

    left = {json.loads(one)["headers"]["id"] for one in queues(redis)[b"news"]}
    assert {"refused", "dead"} <= left


def test_all_waiting_tasks_are_released(delayq, told):
    released = delayq.select(all=True).release(canvas=True)
    drain(delayq)
    assert released.dead == 2
    assert released + 2 + released.uncertain >= len(told) - len(UNREADABLE) - 2
    assert [one.id for one in delayq.tasks()] == []


def test_delivered_tasks_and_past_events_are_known(delayq):
    assert delayq.handed_over("handed over")
    assert delayq.handed_over(key="left")
    assert delayq.cancel("handed over") is Outcome.HANDED_OVER
    assert {one.what.value for one in delayq.history()} >= {"scheduled", "handed_over", "cancelled"}
    (whole,) = [one for one in delayq.history() if one.bulk]
    assert (whole.what, whole.count, whole.actor) == ("cancelled", 2, "ann")
    assert len(delayq.history(bulk=whole.bulk)) == 3
    (shard_steps,) = delayq.services.steps_by_shard()
    with contextlib.closing(shard_steps):
        assert "owed" in {one.task_id for one in shard_steps.owed()}
    assert delayq.services.copies.first(("arrived", "1.1"), 2, monotonic() + PATIENCE) == 1


def test_what_was_cancelled_before_the_freeze_comes_back(delayq):
    assert delayq.undo("cancelled").timestamp() == FAR
    (bulk,) = {one.bulk for one in delayq.undoable() if one.bulk}
    undone = delayq.undo_all(bulk)
    assert (undone.done, undone.lost, bool(undone)) == (2, 0, True)


def test_new_tasks_are_scheduled_beside_frozen_ones_and_share_their_templates(delayq, redis):
    before = redis.hlen("{delayq:0}:templates")
    options = {"task_id": "new", "delayq_at": FAR, "delayq_key": "all"}

    with pytest.raises(ValueError, match="under this key"):
        delayq.app.send_task("shop.remind", **options)
    delayq.app.send_task("shop.remind", **options, delayq_conflict="replace")

    assert delayq.get(key="all").id == "new"
    assert delayq.get("all extras") is None
    assert redis.hlen("{delayq:0}:templates") <= before + 1


def test_a_dump_of_a_frozen_store_is_what_it_was_when_frozen(request, delayq):
    name = request.node.callspec.params["frozen"].stem
    made, frozen = [*delayq.dump()], lines_of(HERE / f"{name}.dump.jsonl")
    for lines in (made, frozen):
        for field in OF_THE_MOMENT:
            del lines[0][field]
    assert made == frozen


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.name.partition(".")[0])
def test_a_frozen_dump_is_loaded(redis_server, redis, path):
    frozen = lines_of(path)
    with contextlib.closing(app_of(redis_server.url())) as delayq:
        loaded = delayq.load(path.read_text("ascii").splitlines())
        made = [*delayq.dump()]

        assert not loaded.refused
        assert {name for name, _ in loaded.unreadable} == UNREADABLE
        assert not [*delayq.check()]

    tasks = [line for line in frozen if line["kind"] == "task"]
    for line in tasks:
        if line["state"] == "in_flight":
            line["state"] = "paused"  # it is due, and its queue is
            if not line.get("holds_key"):
                line.pop("key", None)  # another one has it
    assert [line for line in made if line["kind"] == "task"] == tasks
    paused = [line for line in frozen if line["kind"] == "pause" and not line.get("resumed")]
    assert [line["queue"] for line in made if line["kind"] == "pause"] == [
        line["queue"] for line in paused
    ]
