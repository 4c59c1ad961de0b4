"""Unique keys and the other options of an entry: from the call, or its task, to the store."""

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from celery import chain, chord, group, states
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult, GroupResult
from celery.signals import task_revoked

from celery_delayq import AlreadyScheduled, Item, Outcome, State
from celery_delayq.core.clock import from_ms
from celery_delayq.errors import InvalidOption, KeyHeld
from tests.app.conftest import app_with_results as app
from tests.app.support import (
    ALL_WAYS,
    FAR,
    LONG_AGO,
    WAYS,
    comparable,
    envelope,
    noop,
    only_message,
)
from tests.support.shards import keys_of, total

__all__ = ["app"]


WORDS = {
    "delayq_key": "k",
    "delayq_tags": ["a", "b"],
    "delayq_late": "skip",
    "delayq_grace": 60,
}
TERMS = ("k", ("a", "b"), 60_000)


def terms(delayq, task_id=None):
    """Key, tags and grace in ms of the only entry."""
    if task_id is None:
        [waiting] = delayq.tasks()
        task_id = waiting.id
    extras = delayq.services.entries.find(task_id).extras
    return extras.key, extras.tags, extras.grace_ms


CANVASES = {
    "group": lambda add, *_, **said: group([add.s(1)]).set(**said).delay_until(FAR),
    "chord": lambda add, *_, **said: chord([add.s(1)], add.s()).set(**said).delay_until(FAR),
    "chain": lambda add, *_, **said: (add.s(1) | add.s(2)).set(**said).delay_until(FAR),
    "chunks": lambda add, *_, **said: add.chunks([(1,)], 1).set(**said).delay_until(FAR),
}
KINDS = {
    **WAYS,
    **CANVASES,
    "schedule by name": lambda add, *_, delayq_once, **said: add.app.delayq.schedule(
        add.s(1).set(delayq_once=delayq_once),
        at=FAR,
        **{name.removeprefix("delayq_"): one for name, one in said.items()},
    ),
    "capture": lambda add, *_, **said: add.apply_async((1,), countdown=3600, **said),
}


@pytest.mark.parametrize("way", KINDS)
def test_options_of_ours_are_the_entry_s_and_once_is_a_header_whatever_the_way(
    app, add, delayq, way
):
    app.conf.delayq_capture_eta = True

    KINDS[way](add, 1, **WORDS, delayq_unique_for=5, delayq_once=True)

    assert terms(delayq) == TERMS
    [waiting] = delayq.tasks()
    assert delayq.services.entries.find(waiting.id).extras.hold == "w5000"
    assert envelope(delayq, waiting.id).headers["delayq_once"] is True
    text = f"{envelope(delayq, waiting.id).raw} {delayq.get(waiting.id).args}"
    assert [name for name in (*WORDS, "delayq_unique_for") if name in text] == []


def test_a_message_arrives_as_without_options_of_ours(add, delayq, redis):
    add.apply_async((1,), {"y": 2}, task_id="a", delayq_at=LONG_AGO)
    delayq.hand_over()
    plain = comparable(only_message(redis)[1])
    redis.flushall()

    words = {**WORDS, "delayq_grace": 5 * 10**9}
    add.apply_async((1,), {"y": 2}, task_id="a", delayq_at=LONG_AGO, **words)
    delayq.hand_over()

    assert comparable(only_message(redis)[1]) == plain


def test_options_of_schedule_override_those_of_the_signature(add, delayq):
    signature = add.s(1).set(delayq_key="other", delayq_tags=["other"])

    delayq.schedule(signature, at=FAR, key="k", tags=["a"])

    assert terms(delayq) == ("k", ("a",), None)


# tests/unit/test_keys.py tries every bad value; here, one of them in each kind of call.
def test_a_wrong_option_is_refused_before_anything_is_written(add, delayq, redis):
    calls = [
        lambda: delayq.schedule(add.s(1), at=FAR, key="a\0b"),
        lambda: delayq.schedule(group(add.s(1), add.s(2)), at=FAR, key="a\0b"),
        lambda: add.apply_async((1,), delayq_at=FAR, delayq_key="a\0b"),
        lambda: add.s(1).set(delayq_key="a\0b").delay_for(60),
    ]
    for call in calls:
        with pytest.raises(InvalidOption) as caught:
            call()
        facts = [caught.value.name, caught.value.value, caught.value.expected]
        assert facts == ["delayq_key", "a\0b", "text of 1 to 255 bytes without NUL"]
    assert redis.keys() == []


def test_wrong_options_are_refused_where_tasks_are_always_eager(app, add, delayq):
    app.conf.task_always_eager = True

    with pytest.raises(InvalidOption):
        delayq.schedule(add.s(1), at=FAR, tags="a")

    result = delayq.schedule(add.s(1), at=FAR, key="k", tags=["a"])
    assert (result.get(), result.existed) == (1, False)


@pytest.mark.parametrize("option", ["delayq_key", "delayq_conflict", "delayq_late"])
def test_options_of_ours_without_a_due_time_are_refused_and_nothing_is_sent(add, redis, option):
    with pytest.raises(InvalidOption) as caught:
        add.apply_async((1,), **{option: "x"})

    assert str(caught.value) == (
        f"{option} is 'x'; expected a due time beside it: delayq_at or delayq_after"
    )
    assert redis.keys() == []


def test_an_eta_with_options_of_ours_is_captured_however_near_it_is(app, add, delayq, redis):
    app.conf.update(delayq_capture_eta=True, delayq_min_delay=100)

    add.apply_async((1,), countdown=1, delayq_key="k")

    assert terms(delayq) == ("k", (), None)
    assert redis.llen("celery") == 0


@pytest.mark.parametrize("name", ["delayq_key", "delay_reason"])
def test_a_stamp_or_a_header_of_an_option_s_name_is_no_option(add, delayq, redis, name):
    stamped = {name: "stamp", "stamped_headers": [name]}

    add.apply_async((1,), **stamped)
    held = add.apply_async((1,), delayq_at=FAR, headers={"delayq_tags": ["mine"]}, **stamped)

    assert redis.llen("celery") == 1
    assert terms(delayq, held.id) == ("", (), None)
    assert envelope(delayq, held.id).headers["stamps"] == {name: "stamp"}
    assert envelope(delayq, held.id).headers["delayq_tags"] == ["mine"]


# Attributes of the task.


@pytest.fixture
def task(app):
    """Make a task with attributes of ours: ``task(delayq_tags=["a"])``."""
    return lambda **attributes: app.task(name="t", **attributes)(noop)


@pytest.fixture
def tagged(task):
    return task(delayq_tags=["a", "b"], delayq_late="skip", delayq_grace=60)


CALLS = {**ALL_WAYS, "capture": lambda task: task.apply_async(countdown=3600)}


@pytest.mark.parametrize("way", CALLS)
def test_a_task_s_attributes_hold_for_its_calls(app, tagged, delayq, way):
    app.conf.delayq_capture_eta = True

    CALLS[way](tagged)

    assert terms(delayq) == ("", ("a", "b"), 60_000)


def test_a_call_s_options_go_before_its_task_s(tagged, delayq):
    other = delayq.schedule(tagged, at=FAR, tags=["c"], grace=5)
    none = delayq.schedule(tagged, at=FAR, tags=[], late="run")

    assert terms(delayq, other.id) == ("", ("c",), 5000)
    assert terms(delayq, none.id) == ("", (), None)


def test_a_call_that_is_not_scheduled_does_not_ask_for_its_task_s_options(task, redis):
    task(delayq_tags="no list", delayq_key="k").delay()

    assert redis.llen("celery") == 1


# Two calls with the same key or id: which task waits, and which answer the other call returns.


def waiting(delayq):
    """The arguments of all waiting tasks, by id."""
    return {task.id: task.args for task in delayq.tasks()}


def told(task_id, app):
    """The state of a result in the backend, and the reason for it."""
    meta = app.backend.get_task_meta(task_id)
    return meta["status"], str(meta["result"])


def owed(redis):
    """The number of tasks for which ``REVOKED`` must still be stored."""
    return total(redis.zcard, "outbox")


@pytest.fixture
def revoked():
    """The ids for which ``task_revoked`` is sent."""
    ids = []

    def note(request, **_):
        ids.append(request.id)

    task_revoked.connect(note)
    yield ids
    task_revoked.disconnect(note)


@pytest.fixture
def holder(add, delayq):
    return delayq.schedule(add.s(1), at=FAR, key="k")


def test_a_key_that_is_taken_is_refused(add, delayq, holder):
    with pytest.raises(AlreadyScheduled) as caught:
        delayq.schedule(add.s(2), at=FAR, key="k")
    assert caught.value.holder == holder.id
    assert waiting(delayq) == {holder.id: (1,)}


def test_a_call_returns_the_task_that_is_kept(add, delayq, redis, holder, revoked):
    kept = delayq.schedule(add.s(2), at=FAR - 60, key="k", conflict="keep")

    assert (kept.id, kept.due, kept.existed) == (holder.id, holder.due, True)
    assert not holder.existed
    assert waiting(delayq) == {holder.id: (1,)}
    assert redis.info("keyspace").keys() == {"db0"}, "an unknown id leaves no key behind"
    assert revoked == []
    assert kept.cancel()
    assert holder.state == states.REVOKED


def test_a_replaced_task_is_revoked_and_names_its_replacement(add, delayq, redis, holder, revoked):
    new = delayq.schedule(add.s(2), at=FAR + 60, key="k", conflict="replace")

    assert not new.existed
    assert new.due.timestamp() == FAR + 60
    assert waiting(delayq) == {new.id: (2,)}
    assert told(holder.id, add.app) == (states.REVOKED, f"replaced by {new.id}")
    assert revoked == [holder.id]
    assert owed(redis) == 0
    assert holder.cancel() is Outcome.NOT_FOUND
    assert new.cancel()


def test_an_id_that_celery_gave_out_is_revoked_where_another_is_kept(
    add, delayq, redis, holder, revoked
):
    result = add.apply_async((2,), delayq_at=FAR, delayq_key="k", delayq_conflict="keep")

    assert waiting(delayq) == {holder.id: (1,)}
    with pytest.raises(TaskRevokedError) as caught:
        result.get(timeout=30)
    assert str(caught.value) == f"kept {holder.id}"
    assert told(holder.id, add.app)[0] == states.PENDING
    assert revoked == [result.id]
    assert owed(redis) == 0


def test_without_a_result_backend_the_signal_tells(delayq_app, url, redis, revoked):
    delayq = delayq_app(url).delayq
    first = delayq.schedule(delayq.app.signature("t"), at=FAR, key="k")

    delayq.schedule(delayq.app.signature("t"), at=FAR, key="k", conflict="replace")
    delayq.app.send_task("t", delayq_at=FAR, delayq_key="k", delayq_conflict="keep")

    assert revoked == [first.id]
    assert owed(redis) == 0


def test_debounce_puts_it_off_by_max_wait_since_the_first_call_at_most(add, delayq):
    options = {"key": "k", "conflict": "debounce", "max_wait": 60}
    first = delayq.schedule(add.s(1), after=30, **options)
    created = delayq.get(first.id).created

    delayq.schedule(add.s(2), after=3600, **options)

    task = delayq.get(key="k")
    assert (task.args, task.created) == ((2,), created)
    assert timedelta(0) <= task.due - created - timedelta(minutes=1) <= timedelta(milliseconds=1)


# The key of a canvas.


@pytest.mark.libraries
def test_a_kept_task_stands_for_a_canvas(add, delayq, redis, holder):
    for canvas in (group(add.s(2), add.s(3)), add.s(2) | add.s(3), chord([add.s(2)], add.s(3))):
        kept = delayq.schedule(canvas, at=FAR, key="k", conflict="keep")

        assert type(kept.id) is str
        assert (kept.id, kept.existed, kept.due) == (holder.id, True, holder.due)
        assert isinstance(kept, AsyncResult)
        assert not isinstance(kept, GroupResult)
    assert waiting(delayq) == {holder.id: (1,)}
    assert redis.info("keyspace").keys() == {"db0"}


# Many calls at once: one task waits, and no caller hangs.


CALLERS = 100


def at_once(calls):
    """Run each call in its own thread, all starting together; return their answers."""
    together = threading.Barrier(len(calls))

    def run(call):
        together.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [*pool.map(run, calls)]


def successors(ids, app):
    """Each id with the id of its task's successor, as in its result."""
    reasons = {one: told(one, app) for one in ids}
    return {
        one: why.removeprefix("replaced by ")
        for one, (state, why) in reasons.items()
        if state == states.REVOKED
    }


def test_of_many_that_replace_one_another_the_last_waits_and_each_other_names_the_next(
    app, add, delayq, redis
):
    def call(number):
        signature = add.s(number)  # here, as Celery's proxies of tasks are not made for threads
        return lambda: delayq.schedule(signature, at=FAR, key="k", conflict="replace")

    results = at_once([call(number) for number in range(CALLERS)])

    assert len(results) == CALLERS
    [(last, (number,))] = waiting(delayq).items()
    named = successors([result.id for result in results], app)
    assert named.keys() == {result.id for result in results} - {last}
    assert Counter(named.values()).most_common(1)[0][1] == 1, "each is replaced by a different task"
    one, row = next(iter(named.keys() - set(named.values()))), 1
    while one in named:
        one, row = named[one], row + 1
    assert (one, row) == (last, CALLERS), "one chain of all tasks, which ends with the waiting one"
    assert delayq.get(last).args == (number,)
    assert owed(redis) == 0


def test_of_many_that_keep_what_is_there_one_is_scheduled_and_the_others_are_given_it(
    app, add, delayq
):
    signature = add.s(1)
    results = at_once(
        [lambda: delayq.schedule(signature, at=FAR, key="k", conflict="keep")] * CALLERS
    )

    [holder] = waiting(delayq)
    assert Counter((result.id, result.existed) for result in results) == {
        (holder, False): 1,
        (holder, True): CALLERS - 1,
    }


# `unique_until` and `unique_for`: how a key is held, the task that holds it, and one behind it.


UNTIL = {"key": "k", "unique_until": "finished"}


def hold(delayq):
    """The key of the only entry, and how it holds."""
    [task] = delayq.tasks()
    extras = delayq.services.entries.find(task.id).extras
    return extras.key, extras.hold


def test_each_item_of_a_bulk_may_have_its_own(add, delayq):
    keys = [Item((n,), key=f"k{n}", unique_until="finished", unique_for=n + 1) for n in range(4)]
    bulk = delayq.schedule_many(add, keys, at=FAR)
    holds = [delayq.services.entries.find(one).extras.hold for one in bulk.ids]
    assert holds == ["f1000", "f2000", "f3000", "f4000"]


def test_a_task_s_attributes_are_the_defaults_of_calls_with_a_key(app, delayq):
    synced = app.task(name="synced", delayq_unique_until="finished", delayq_unique_for=5)(noop)

    delayq.schedule(synced.s(), at=FAR).cancel()
    delayq.schedule(synced.s(), at=FAR, key="k")

    assert hold(delayq) == ("k", "f5000")


@pytest.mark.parametrize("canvas", [group, chain])
def test_a_canvas_has_no_key_until_it_finishes(add, delayq, redis, canvas):
    with pytest.raises(InvalidOption) as caught:
        delayq.schedule(canvas([add.s(1), add.s(2)]), at=FAR, **UNTIL)
    assert str(caught.value) == (
        "delayq_unique_until is 'finished'; expected a plain task: the parts of a canvas end one "
        "by one"
    )
    assert redis.keys() == []


def test_a_canvas_may_have_a_window(add, delayq):
    delayq.schedule(group([add.s(1)]), at=FAR, key="k", unique_for=5)
    assert hold(delayq) == ("k", "w5000")


# The task that holds it after its delivery.


@pytest.fixture
def running(add, delayq):
    result = delayq.schedule(add.s(1), at=LONG_AGO, **UNTIL)
    assert delayq.hand_over() == 1
    return result


def test_another_task_is_refused_and_names_it_or_gets_its_result(add, delayq, running):
    with pytest.raises(KeyHeld) as caught:
        delayq.schedule(add.s(2), at=FAR, key="k")
    assert caught.value.holder == running.id
    assert caught.value.until == delayq.holder(key="k").until

    kept = delayq.schedule(add.s(2), at=FAR, key="k", conflict="keep")
    assert (kept.id, kept.existed) == (running.id, True)
    assert list(delayq.tasks()) == []


def test_a_dump_has_how_keys_hold(delayq_app, url, add, delayq):
    delayq.schedule(add.s(1), at=FAR, key="k", unique_until="finished", unique_for=5)
    delayq.schedule(add.s(2), at=FAR, key="l", unique_for=7)
    lines = [*delayq.dump()]
    told = {(one["key"], one["unique_ms"], one.get("until_finished")) for one in lines[1:-1]}
    assert told == {("k", 5000, True), ("l", 7000, None)}

    two = delayq_app(url, delayq_prefix="two").delayq
    assert two.load(lines).loaded == 2

    found = {two.services.entries.find(task.id).extras.hold for task in two.tasks()}
    assert found == {"f5000", "w7000"}


# A task behind it.


@pytest.fixture
def second(add, delayq, running):
    return delayq.schedule(add.s(2), at=FAR, conflict="replace", **UNTIL)


def test_each_read_shows_the_task_that_runs_before_one_behind_it_and_the_end_of_that(
    add, delayq, redis, running, second
):
    ends = from_ms(int(redis.zscore(keys_of("k")["held"], "k")))
    assert delayq.holder(key="k").until == ends
    for task in (delayq.get(key="k"), *delayq.tasks(), *delayq.select(state="SCHEDULED")):
        assert (task.id, task.behind, task.behind_until) == (second.id, running.id, ends)
        assert task.state is State.SCHEDULED
    facts = json.loads(json.dumps(delayq.get(second.id).facts()))
    said = facts["key"], facts["behind"], facts["behind_until"]
    assert said == ("k", running.id, ends.isoformat())

    other = delayq.get(delayq.schedule(add.s(2), at=FAR, key="other"))
    assert other.behind == ""
    assert "behind" not in other.facts()


def test_a_task_behind_one_that_waits_itself_has_no_end_of_that(delayq, redis, running, second):
    redis.hset(keys_of("k")["holders"], "k", "first")
    task = delayq.get(second.id)
    assert (task.behind, task.behind_until) == ("first", None)
    assert "behind_until" not in task.facts()


def test_calls_by_key_are_about_the_task_behind(delayq, running, second):
    assert delayq.edit(key="k", args=(5,)) is Outcome.DONE
    assert delayq.run_now(key="k") is Outcome.BEHIND
    assert delayq.hand_over() == 0
    assert delayq.get(key="k").args == (5,)
    assert delayq.cancel(key="k") is Outcome.DONE
    assert second.state == "REVOKED"
    assert delayq.get(key="k") is None
    assert running.cancel() is Outcome.HANDED_OVER


def test_a_dump_has_the_task_behind_and_a_load_keeps_it_under_its_key(
    delayq_app, url, delayq, second
):
    _, line, _ = lines = [*delayq.dump()]
    assert (line["id"], line["state"]) == (second.id, "behind")

    two = delayq_app(url, delayq_prefix="two").delayq
    assert two.load(lines).loaded == 1
    assert two.load(lines).here == 1

    task = two.get(key="k")
    assert (task.id, task.behind) == (second.id, "")
    assert [*two.check()] == []


def test_a_line_without_a_key_waits_behind_nothing(delayq, second):
    head, line, end = delayq.dump()
    del line["key"], line["unique_ms"], line["until_finished"]
    assert delayq.load([head, {**line, "id": "b"}, end]).loaded == 1
    assert delayq.get("b").behind == ""
    assert delayq.counts().refused == 0
    assert [*delayq.check()] == []


# By key, as by id.


@pytest.mark.core
@pytest.mark.operations
def test_a_waiting_task_is_read_and_edited_by_its_key(add, delayq):
    delayq.schedule(add.s(9), at=FAR, key="other")
    first = delayq.schedule(add.s(1), at=FAR, key="k")

    assert delayq.get(key="k") == delayq.get(first)
    assert delayq.state(key="k") is State.SCHEDULED
    result = delayq.result(key="k")
    assert (result, result.due) == (first, first.due)
    revision = delayq.get(key="k").revision
    assert delayq.edit(key="k", args=[5], if_revision=revision) is Outcome.DONE
    assert delayq.edit(key="k", args=[6], if_revision=revision) is Outcome.UNCHANGED
    assert delayq.get(first).args == (5,)
    assert delayq.edit(key="k", args=["x" * 9000]), "it has its key still"
    assert delayq.cancel(key="k")


@pytest.mark.core
@pytest.mark.operations
def test_the_last_task_under_a_key_is_known_to_have_been_delivered(add, delayq):
    first = delayq.schedule(add.s(1), at=LONG_AGO, key="k")
    assert delayq.handed_over(key="k") is None
    delayq.hand_over()

    assert delayq.handed_over(key="k") == delayq.handed_over(first) is not None
    assert delayq.edit(key="k", args=[5]) is Outcome.HANDED_OVER
    for unknown in (delayq.get, delayq.result, delayq.state):
        assert unknown(key="k") is None
    assert delayq.edit(key="none", args=[5]) is Outcome.NOT_FOUND
