"""Hooks: the services call them at each step, and a failing hook does not break the step."""

import pytest

from celery_delayq import Outcome
from celery_delayq.contrib import events
from celery_delayq.core.hooks import IDS, LATENESS, Hooks
from celery_delayq.errors import StoreError
from tests.app.support import FAR, LONG_AGO
from tests.support.shards import with_one_shard

pytestmark = pytest.mark.libraries


def give(delayq, **hooks):
    delayq.services.hooks = Hooks(**hooks)


def send(app, *ids, at=FAR):
    for task_id in ids:
        app.send_task("t", task_id=task_id, delayq_at=at)


def test_a_hook_that_raises_is_logged_and_spoils_no_step(app, delayq, caplog):
    def broken(*_):
        raise RuntimeError("somebody's mistake")

    names = ("scheduled", "cancelled", "edited", "rescheduled", "handed_over")
    give(delayq, **dict.fromkeys(names, broken), hears_handed_over=lambda: True)

    send(app, "a")

    assert delayq.edit("a", args=[1])
    assert delayq.reschedule("a", LONG_AGO)
    assert delayq.hand_over() == 1
    send(app, "a")
    assert delayq.cancel("a")
    assert [record.exc_info[1].args for record in caplog.records] == [("somebody's mistake",)] * 6


@pytest.mark.parametrize("heard", [True, False])
def test_a_hook_is_called_only_while_somebody_listens(app, delayq, heard):
    told, ears = [], (lambda: False, lambda: heard)
    give(
        delayq,
        scheduled=lambda _: told.append("scheduled"),
        cancelled=lambda _: told.append("cancelled"),
        hears_scheduled=ears,
        hears_cancelled=ears,
    )

    send(app, "a")
    delayq.cancel("a")

    assert told == (["scheduled", "cancelled"] if heard else [])


def test_hooks_that_are_added_without_ears_always_hear(app, delayq):
    told = []
    hooks = Hooks(scheduled=told.append, hears_scheduled=(lambda: False,))
    hooks.add(Hooks(scheduled=told.append))
    delayq.services.hooks = hooks

    send(app, "a")

    assert len(told) == 2


@pytest.mark.parametrize("wanted", [True, False])
def test_messages_are_read_only_where_they_are_wanted(app, delayq, wanted):
    told = []
    give(delayq, cancelled=told.extend, hears_messages=lambda: wanted)
    send(app, "a", "b")

    delayq.cancel("a")
    delayq.select(all=True).cancel()

    assert [(one.task_id, bool(one.message)) for one in told] == [("a", wanted), ("b", wanted)]


@pytest.mark.parametrize("wanted", [True, False])
def test_ids_and_lateness_of_a_hand_over_are_told_only_where_they_are_wanted(app, delayq, wanted):
    ids, late = [], []
    give(
        delayq,
        handed_over=ids.append,
        hears_handed_over=lambda: wanted,
        left=lambda *facts: late.append(facts),
        hears_left=lambda: not wanted,
    )
    send(app, "a", at=LONG_AGO)

    assert delayq.hand_over() == 1
    assert ids == ([["a"]] if wanted else [])
    # It was scheduled just now, so it is less late than its due time suggests.
    assert [(path, len(times), times[0] < 60) for path, times in late] == (
        [] if wanted else [("direct", 1, True)]
    )


@pytest.mark.parametrize("own_id", [True, False])
def test_a_task_that_gives_way_is_not_reported_as_cancelled(app_with_results, own_id):
    delayq, told, gone = app_with_results.delayq, [], []
    give(delayq, gave_way=told.extend, cancelled=gone.extend)
    for task_id in ("a", "a" if own_id else "b"):
        app_with_results.send_task(
            "t", task_id=task_id, delayq_at=FAR, delayq_key="k", delayq_conflict="keep"
        )

    # A task under the same id is not another task.
    assert [(one.task_id, one.reason) for one in told] == ([] if own_id else [("b", "kept a")])
    assert gone == []


def test_an_app_s_hooks_want_nothing_without_a_listener(app):
    hooks = events.hooks(app)

    assert not hooks.hears_messages()
    assert not hooks.hears_handed_over()
    assert (hooks.wants, hooks.hears_calls) == (0, False)


def test_a_call_for_one_task_that_changes_nothing_is_told_with_its_answer(app, delayq):
    told = []
    give(delayq, missed=lambda *facts: told.append(facts))
    send(app, "a")
    send(app, "b", at=LONG_AGO)
    delayq.hand_over()

    delayq.cancel("b")
    delayq.cancel("c")
    delayq.remove("a")
    delayq.reschedule("a", FAR + 1, only="earlier")
    delayq.run_now("b")
    delayq.edit("b", args=[1])
    delayq.edit("a", args=[1], if_revision=1)
    assert delayq.edit("a", args=[1])
    assert delayq.reschedule("a", FAR + 1)
    assert delayq.cancel("a")

    assert told == [
        ("cancel", Outcome.HANDED_OVER),
        ("cancel", Outcome.NOT_FOUND),
        ("cancel", Outcome.UNCHANGED),
        ("reschedule", Outcome.UNCHANGED),
        ("reschedule", Outcome.HANDED_OVER),
        ("edit", Outcome.HANDED_OVER),
        ("edit", Outcome.UNCHANGED),
    ]


def test_tasks_that_their_list_refuses_are_counted(app, delayq, redis):
    told = []
    give(delayq, refused=lambda *facts: told.append(facts))
    redis.set("celery", "no list")
    send(app, "a", "b", at=LONG_AGO)

    assert delayq.hand_over() == 0
    assert sum(count for _, count in told) == 2
    assert {path for path, _ in told} == {"direct"}


def test_hooks_that_are_added_hear_at_once_and_beside_the_others(app, delayq):
    mine, theirs = [], []
    give(delayq, scheduled=mine.extend)
    delayq.counts()  # the store is connected

    delayq.services.hooks.add(
        Hooks(scheduled=theirs.extend, called=lambda name, _: theirs.append(name))
    )
    send(app, "a")

    assert [new.task_id for new, _ in mine] == ["a"]
    assert theirs[-2:] == ["schedule", *mine]


@pytest.mark.parametrize("mine", [True, False])
@pytest.mark.parametrize("theirs", [True, False])
def test_two_hooks_want_the_facts_that_either_wants(mine, theirs):
    hooks = Hooks(hears_left=lambda: mine)

    hooks.add(Hooks(hears_left=lambda: theirs, hears_handed_over=lambda: theirs))

    assert hooks.wants == LATENESS * (mine or theirs) + IDS * theirs


@with_one_shard
def test_a_call_that_fails_is_timed_as_well(app, delayq, redis):
    told = []
    delayq.services.hooks.add(Hooks(called=lambda *facts: told.append(facts)))
    delayq.counts()
    redis.set(delayq.services.scripts[0].keys["due"], "no index")

    with pytest.raises(StoreError):
        delayq.counts()

    assert [name for name, _ in told if name == "counts"] == ["counts"] * 2
    assert all(0 <= took < 60 for _, took in told)
