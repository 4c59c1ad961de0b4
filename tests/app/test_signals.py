"""What others hear of each step: Celery's signals, ours, and hooks."""

from datetime import datetime, timezone

import pytest
from celery import chain, group
from celery.app.trace import build_tracer
from celery.signals import task_revoked

from celery_delayq import Outcome, signals
from celery_delayq.contrib import events
from celery_delayq.core.hooks import IDS, LATENESS, Hooks
from celery_delayq.errors import StoreError
from tests.app.support import FAR, LONG_AGO, WAYS, redis_ms
from tests.support.places import take
from tests.support.shards import with_one_shard

pytestmark = pytest.mark.libraries


# Celery's signals: cancelled tasks send `task_revoked`; a cancelled retry stays REVOKED.


@pytest.fixture
def revoked(listen):
    told = []
    listen(task_revoked, lambda **facts: told.append(facts))
    return told


@pytest.mark.parametrize("how", ["cancel", "revoke", "cancel of many"])
def test_a_task_that_is_cancelled_is_revoked_as_celery_has_it(app, add, delayq, revoked, how):
    result = add.s(1, y=2).set(headers={"trace": "x"}).delay_until(FAR)

    if how == "cancel of many":
        delayq.select(task="add").cancel()
    else:
        (delayq.cancel if how == "cancel" else app.control.revoke)(result.id)

    [told] = revoked
    request = told.pop("request")
    told.pop("signal")
    assert told == {"sender": add, "terminated": False, "signum": None, "expired": False}
    assert (request.id, request.task) == (result.id, "add")
    assert (request.args, request.kwargs) == ([1], {"y": 2})
    assert request.headers["trace"] == "x"


def test_a_canvas_is_told_once_and_a_task_that_only_its_name_is_known_of_by_it(app, add, revoked):
    app.send_task("elsewhere", task_id="a", delayq_at=FAR)
    app.delayq.cancel("a")
    group(add.s(1), add.s(2)).delay_until(FAR).cancel()

    assert revoked[0]["sender"] == "elsewhere"
    assert revoked[1]["sender"].name == "celery_delayq.launch"
    assert len(revoked) == 2


def test_arguments_that_the_app_does_not_accept_stay_unread(delayq_app, url, revoked):
    app = delayq_app(url, accept_content=["json"])

    app.send_task("t", (1,), task_id="a", serializer="pickle", delayq_at=FAR)
    app.delayq.cancel("a")

    assert [(facts["request"].id, facts["request"].args) for facts in revoked] == [("a", None)]


def test_a_task_that_left_before_is_not_told_of(add, delayq, revoked):
    result = add.delay_until(LONG_AGO, 1)
    delayq.hand_over()

    result.cancel()
    delayq.cancel("never was")

    assert revoked == []


@pytest.fixture
def retrying(app_with_results, monkeypatch):
    """Run a task that retries, as a worker does; ``meanwhile()`` just before it stores RETRY."""
    app = app_with_results
    app.conf.delayq_capture_eta = True

    @app.task(name="retrying", bind=True, shared=False)
    def task(self, countdown):
        raise self.retry(countdown=countdown)

    def run(meanwhile, countdown=3600, **request):
        plain = app.backend.mark_as_retry

        def mark_as_retry(*args, **options):
            meanwhile(app.delayq)
            return plain(*args, **options)

        monkeypatch.setattr(app.backend, "mark_as_retry", mark_as_retry)
        build_tracer(task.name, task, app=app)("a", (countdown,), {}, {"id": "a", **request})
        return app.AsyncResult("a")

    return run


def schedule_anew(delayq):
    assert delayq.cancel("a")
    delayq.app.send_task("retrying", (1,), task_id="a", delayq_at=FAR)


MEANWHILE = {
    "cancelled": (lambda delayq: delayq.cancel("a"), "REVOKED"),
    "waiting": (lambda delayq: delayq.reschedule("a", by=60), "RETRY"),
    "scheduled anew": (schedule_anew, "RETRY"),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_a_retry_is_revoked_if_it_is_cancelled_when_the_worker_stores_its_state(retrying, what):
    step, state = MEANWHILE[what]

    assert retrying(step).state == state


def test_a_retry_that_celery_sends_has_nothing_to_do_with_an_earlier_cancel(
    app_with_results, retrying
):
    app_with_results.send_task("retrying", (1,), task_id="a", delayq_at=FAR)
    assert app_with_results.delayq.cancel("a")

    result = retrying(lambda _: None, countdown=0)

    assert result.state == "RETRY"


def test_a_cancelled_retry_is_counted_once_by_its_chord(app_with_results, retrying, monkeypatch):
    counted = []
    monkeypatch.setattr(
        app_with_results.backend,
        "on_chord_part_return",
        lambda request, *_, **__: counted.append(request.id),
    )

    result = retrying(
        lambda delayq: delayq.cancel("a"), chord={"task": "body", "options": {}}, group="g"
    )

    assert result.state == "REVOKED"
    assert counted == ["a"]


# `celery_delayq.signals`: each step sends one signal on its changes, in Celery's own form.


DUE = datetime(2100, 1, 1, tzinfo=timezone.utc)
LATER = datetime(2100, 1, 1, 0, 1, tzinfo=timezone.utc)


@pytest.fixture
def heard_of_app(app):
    """The signals sent for *app*'s tasks: (signal, its arguments)."""
    return listening_to(app)


def listening_to(app):
    told = []

    def listen(name):
        def receiver(sender, signal, **facts):
            assert sender is app
            if facts.get("actor") == "":  # no actor was named
                del facts["actor"]
            told.append((name, facts))

        getattr(signals, name).connect(receiver, sender=app, weak=False)

    for name in signals.__all__:
        listen(name)
    return told


def ids(heard_of_app, name):
    return [facts["task_id"] for told, facts in heard_of_app if told == name]


@pytest.mark.parametrize("named", [{"task_id": "a"}, {"key": "k"}], ids=["id", "key"])
def test_a_task_that_is_scheduled_moved_edited_and_cancelled(app, delayq, heard_of_app, named):
    app.send_task("t", task_id="a", delayq_at=FAR, delayq_key="k")
    delayq.reschedule(**named, by=60)
    delayq.edit(**named, priority=3)
    delayq.cancel(**named)

    assert heard_of_app == [
        ("task_scheduled", {"task_id": "a", "due": DUE}),
        ("task_rescheduled", {"task_id": "a", "due": LATER}),
        ("task_edited", {"task_id": "a"}),
        ("task_cancelled", {"task_id": "a", "reason": "cancelled", "uncertain": False}),
    ]


def test_signals_of_the_caller_name_who_acts(app, delayq, heard_of_app):
    with delayq.acting("ann@support"):
        app.send_task("t", task_id="a", delayq_at=FAR)
        delayq.reschedule("a", by=60)
        delayq.edit("a", priority=3)
        delayq.cancel("a")
        app.send_task("t", task_id="b", delayq_at=FAR, delayq_tags=["x"])
        delayq.select(tag="x").cancel()
    app.send_task("t", task_id="c", delayq_at=FAR)

    assert [facts.get("actor") for _, facts in heard_of_app] == ["ann@support"] * 6 + [None]


def test_a_listener_gets_no_signal_of_another_app(app, delayq_app, url, heard_of_app):
    other = delayq_app(url, delayq_prefix="other")

    other.send_task("t", task_id="a", delayq_at=FAR)
    other.delayq.cancel("a")

    assert heard_of_app == []


CALLS = {
    **{name: lambda add, way=way: way(add, 1) for name, way in WAYS.items()},
    "chain": lambda add: add.app.delayq.schedule(chain(add.s(1), add.s(2)), at=FAR),
    "group": lambda add: add.app.delayq.schedule(group(add.s(1), add.s(2)), at=FAR),
}


@pytest.mark.parametrize("way", CALLS)
def test_each_way_of_scheduling_tells_once(add, heard_of_app, way):
    result = CALLS[way](add)

    assert heard_of_app == [("task_scheduled", {"task_id": result.id, "due": DUE})]


@pytest.mark.parametrize("count", [1, 3, 250])
def test_each_item_of_a_bulk_that_was_scheduled_is_told(add, delayq, heard_of_app, count):
    items = [((one,), {}) for one in range(count)]

    bulk = delayq.schedule_many(add, [*items, ((1,), {}, "soon")], at=FAR)

    assert ids(heard_of_app, "task_scheduled") == bulk.ids[:-1]
    assert len(heard_of_app) == count


def test_a_change_that_is_not_made_sends_no_signal(app, delayq, heard_of_app):
    app.send_task("t", task_id="a", delayq_at=FAR)
    del heard_of_app[:]

    assert delayq.cancel("b") is delayq.reschedule("b", FAR) is Outcome.NOT_FOUND
    assert delayq.edit("b", args=[1]) is Outcome.NOT_FOUND
    assert delayq.reschedule("a", FAR + 1, only="earlier") is Outcome.UNCHANGED
    assert delayq.edit("a", args=[1], if_revision=1) is Outcome.UNCHANGED
    assert delayq.retry("a") is delayq.remove("a") is Outcome.UNCHANGED
    with pytest.raises(ValueError, match="already scheduled"):
        app.send_task("t", task_id="a", delayq_at=FAR)

    assert heard_of_app == []


def test_a_replaced_task_is_cancelled_with_a_reason_and_a_kept_one_sends_no_signal(
    app, heard_of_app
):
    for task_id, conflict in (("a", "keep"), ("b", "replace"), ("b", "keep"), ("c", "keep")):
        app.send_task("t", task_id=task_id, delayq_at=FAR, delayq_key="k", delayq_conflict=conflict)

    assert heard_of_app == [
        ("task_scheduled", {"task_id": "a", "due": DUE}),
        ("task_scheduled", {"task_id": "b", "due": DUE}),
        ("task_cancelled", {"task_id": "a", "reason": "replaced by b", "uncertain": False}),
    ]


def test_a_task_that_its_own_bulk_replaces_is_scheduled_and_cancelled(add, delayq, heard_of_app):
    sig = add.s().set(delayq_key="k", delayq_conflict="replace")

    bulk = delayq.schedule_many(sig, [((1,), {}), ((2,), {})], at=FAR)

    assert ids(heard_of_app, "task_scheduled") == bulk.ids
    assert ids(heard_of_app, "task_cancelled") == bulk.ids[:1]


def test_a_selection_tells_of_each_task_that_it_changed(add, app, delayq, heard_of_app):
    sent = {app.send_task("t", delayq_at=FAR).id for _ in range(3)}
    add.delay_until(FAR, 1)
    del heard_of_app[:]

    mine = delayq.select(task="t")
    mine.reschedule(by=60)
    mine.reschedule(FAR, only="later")
    mine.cancel(dry_run=True)
    moved, heard_of_app[:] = heard_of_app[:], []
    mine.cancel()

    assert {name for name, _ in moved} == {"task_rescheduled"}
    assert {facts["task_id"] for _, facts in moved} == sent
    assert {facts["due"] for _, facts in moved} == {LATER}
    assert sorted(ids(heard_of_app, "task_cancelled")) == sorted(sent)
    assert len(heard_of_app) == 3


def test_run_now_sends_task_rescheduled_with_the_present_time(app, delayq, redis, heard_of_app):
    for task_id in ("a", "b"):
        app.send_task("t", task_id=task_id, delayq_at=FAR)
    del heard_of_app[:]
    before = redis_ms(redis)

    delayq.run_now("a")
    delayq.select(all=True, before_due=FAR + 1, after_due=FAR).run_now()

    assert ids(heard_of_app, "task_rescheduled") == ["a", "b"]
    for _, facts in heard_of_app:
        assert int(before) <= facts["due"].timestamp() * 1000 <= redis_ms(redis) + 1


def test_a_batch_that_is_handed_over_is_told_as_one(app, delayq, heard_of_app):
    for task_id in ("a", "b"):
        app.send_task("t", task_id=task_id, delayq_at=LONG_AGO)
    app.send_task("t", task_id="c", queue="another", delayq_at=LONG_AGO)
    app.send_task("t", task_id="later", delayq_at=FAR)
    del heard_of_app[:]

    assert delayq.hand_over() == 3

    batches = [facts["task_ids"] for name, facts in heard_of_app if name == "task_handed_over"]
    assert sorted(task_id for batch in batches for task_id in batch) == ["a", "b", "c"]
    assert len(heard_of_app) == len(batches)


def test_a_paused_task_has_its_signal_when_it_is_delivered(app, delayq, heard_of_app):
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    del heard_of_app[:]

    delayq.pause(all=True)
    delayq.hand_over()
    assert heard_of_app == []
    delayq.resume(all=True)
    assert heard_of_app == []
    delayq.hand_over()

    assert heard_of_app == [("task_handed_over", {"task_ids": ["a"]})]


def test_a_task_that_is_too_late_is_skipped_and_neither_cancelled_nor_delivered(
    app, delayq, heard_of_app, caplog
):
    caplog.set_level("INFO", "celery_delayq")
    app.send_task("t", task_id="a", delayq_at=LONG_AGO, delayq_late="skip", delayq_grace=5)
    del heard_of_app[:]

    assert delayq.hand_over() == 0

    [(name, facts)] = heard_of_app
    assert (name, facts["task_id"]) == ("task_skipped", "a")
    assert facts["reason"].startswith("skipped: ")
    assert f"task a: {facts['reason']}" in caplog.messages
    assert delayq.get("a") is None


def test_a_task_that_a_list_refuses_is_dead_then_retried_and_removed(app, delayq, heard_of_app):
    app.send_task("t", queue="broken", task_id="a", delayq_at=LONG_AGO)
    del heard_of_app[:]

    take(delayq, "dead", "a")
    [(name, facts)] = heard_of_app
    assert (name, facts["task_id"]) == ("task_dead", "a")
    assert "broken" in facts["reason"]
    delayq.retry("a")
    take(delayq, "dead", "a")
    delayq.remove("a")

    assert [name for name, _ in heard_of_app[1:]] == [
        "task_rescheduled",
        "task_dead",
        "task_cancelled",
    ]


def test_a_dead_task_that_cannot_be_read_is_told_when_it_is_removed(
    app, delayq, redis, heard_of_app
):
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    [key] = [key for key in redis.keys("*:records") if redis.hlen(key)]
    redis.hset(key, "a", b"0" + redis.hget(key, "a")[1:])
    delayq.hand_over()
    del heard_of_app[:]

    delayq.remove("a")

    assert ids(heard_of_app, "task_cancelled") == ["a"]


# Hooks: the services call them at each step, and a failing hook does not break the step.


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


def test_an_app_s_hooks_want_nothing_without_a_listener(app, monkeypatch):
    # A worker of an earlier test in this process may still listen.
    monkeypatch.setattr(task_revoked, "receivers", [])
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
