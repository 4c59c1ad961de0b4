"""Celery's results of scheduled tasks: their class and state, what the store knows, and pickles."""

import base64
import copy
import dataclasses
import itertools
import logging
import pickle
import pickletools
from datetime import datetime, timedelta, timezone

import pytest
from celery import Celery, chain, chord, group, states
from celery.exceptions import TimeoutError as NoResultYet
from celery.result import AsyncResult, GroupResult, result_from_tuple

from celery_delayq import Defer, DelayQ, Item, Outcome, ScheduledResult, State, errors
from celery_delayq.core.integration.results import scheduled, word_of
from celery_delayq.core.scheduling import writing
from celery_delayq.errors import AlreadyScheduled, StoreUnavailable
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR, LONG_AGO
from tests.support.forked import run_forked
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE
from tests.support.worker import ROOT

__all__ = ["app"]

pytestmark = pytest.mark.libraries


def stored(app, task_id, state):
    """A result whose task ended in this way."""
    app.backend.store_result(task_id, 1 if state == "SUCCESS" else ValueError(), state)
    return app.AsyncResult(task_id)


def test_a_group_is_pending_until_its_tasks_have_ended(app, add, delayq):
    result = group(add.s(1), add.s(2)).delay_until(LONG_AGO)
    delayq.hand_over()
    assert result.state == "PENDING"

    for ended, state in zip(result.results, ("PENDING", "SUCCESS"), strict=True):
        app.backend.store_result(ended.id, 1, "SUCCESS")
        assert result.state == state


@pytest.mark.parametrize("state", ["FAILURE", "REVOKED"])
def test_a_group_is_what_ended_badly_in_it(app, delayq, state):
    parts = [stored(app, "a", "SUCCESS"), stored(app, "b", state), app.AsyncResult("c")]

    assert scheduled(GroupResult("g", parts), delayq.services, 0).state == state


def test_a_group_of_groups_is_what_all_of_their_tasks_are(app, delayq):
    inner = GroupResult("i", [stored(app, "a", "SUCCESS")])
    result = scheduled(GroupResult("g", [inner, stored(app, "b", "SUCCESS")]), delayq.services, 0)
    assert result.state == "SUCCESS"

    inner.results.append(app.AsyncResult("c"))
    assert result.state == "PENDING"


# `app.AsyncResult(id)` and `delayq.result(id)` know what the store holds.


@pytest.fixture
def unasked(between):
    """Fail if the store is asked for a task."""
    yield
    assert set(between.asked) <= {"join", "schedule"}


class Own(AsyncResult):
    """An app's own class."""

    def ready(self):
        return "own"


class OwnApp(Celery):
    AsyncResult = Own


# The state of any result.


OF = {
    "app": lambda add, task_id: add.app.AsyncResult(task_id),
    "task": lambda add, task_id: add.AsyncResult(task_id),
    "signature": lambda add, task_id: add.s().AsyncResult(task_id),
    "tuple": lambda add, task_id: result_from_tuple(((task_id, None), None), add.app),
}


@pytest.mark.parametrize("of", OF.values(), ids=OF)
def test_the_state_of_a_waiting_task_is_scheduled_until_it_is_delivered(app, add, delayq, of):
    task_id = add.delay_until(LONG_AGO, 1).id
    result = of(add, task_id)
    assert (result.state, result.status) == ("SCHEDULED", "SCHEDULED")

    delayq.hand_over()
    assert (result.state, result.status) == ("PENDING", "PENDING")

    app.backend.store_result(task_id, 5, "SUCCESS")
    assert (result.state, result.get(timeout=30)) == ("SUCCESS", 5)


def test_the_state_of_a_plain_call_is_pending(add):
    assert add.delay(1).state == "PENDING"


def test_each_state_of_the_store_has_a_word():
    assert {state: word_of(state) for state in State} == {
        State.SCHEDULED: "SCHEDULED",
        State.PAUSED: "PAUSED",
        State.IN_FLIGHT: "SCHEDULED",
        State.DEAD: "DEAD",
    }


@pytest.mark.parametrize(
    ("word", "value"),
    [("STARTED", None), ("RETRY", ValueError("x")), ("REVOKED", ValueError("x")), ("SUCCESS", 5)],
)
def test_a_state_in_the_backend_stands_and_the_store_gets_no_request(
    app, add, unasked, word, value
):
    result = add.delay_until(FAR, 1)
    app.backend.store_result(result.id, value, word)
    assert app.AsyncResult(result.id).state == word


@pytest.mark.parametrize("way", ["ready", "successful", "failed"])
def test_whether_it_has_run_is_asked_of_the_backend_alone(app, add, unasked, way):
    expected = {"SUCCESS": way != "failed", "FAILURE": way != "successful"}
    for word, so in expected.items():
        result = app.AsyncResult(add.delay_until(FAR, 1).id)
        assert getattr(result, way)() is False
        app.backend.store_result(result.id, None if word == "SUCCESS" else ValueError("x"), word)
        assert getattr(result, way)() is so


def test_a_group_of_pending_results_does_not_ask_for_each(app, add, unasked):
    members = [add.delay(number) for number in range(3)]
    result = app.GroupResult("g", members)
    assert (result.ready(), result.completed_count()) == (False, 0)


@pytest.mark.parametrize("task_id", ["a", "a" * 10_000])
def test_a_task_is_pending_if_the_store_cannot_be_read(
    delayq_app, redis_server, redis, caplog, task_id
):
    away = f"redis://127.0.0.1:{free_port()}/0"
    app = delayq_app(redis_server.url(), redis_server.url(1), delayq_url=away)
    caplog.set_level(logging.DEBUG)

    assert app.AsyncResult(task_id).state == "PENDING"

    [line] = [one for one in caplog.records if one.name == "celery_delayq.core.integration.results"]
    assert line.levelno == logging.DEBUG
    assert "its state cannot be read from the store: " in line.getMessage()


def test_without_a_result_backend_the_state_is_known_while_it_waits(delayq_app, url):
    app = delayq_app(url)
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    result = app.AsyncResult("a")
    assert result.state == "SCHEDULED"

    app.delayq.hand_over()

    with pytest.raises(Exception, match="DisabledBackend") as plain:
        _ = AsyncResult("a", app=app).state
    with pytest.raises(type(plain.value)):
        _ = result.state


# Apps and results that are copied, pickled, or of a custom class.


def test_the_results_of_a_pickled_app_know_it_too(app, add):
    task_id = add.delay_until(FAR, 1).id
    read = pickle.loads(pickle.dumps(app))
    assert read is not app
    assert read.AsyncResult(task_id).state == "SCHEDULED"
    read.delayq.close()


@pytest.mark.parametrize(
    "passed", [copy.copy, lambda result: pickle.loads(pickle.dumps(result))], ids=["copy", "pickle"]
)
def test_a_result_that_is_copied_or_pickled_knows_it_too(app, add, passed):
    app.set_current()
    result = app.AsyncResult(add.delay_until(FAR, 1).id)
    other = passed(result)
    assert (other.state, other) == ("SCHEDULED", result)


@pytest.fixture
def own_app(redis_server, redis):
    app = OwnApp("own", broker=redis_server.url(), backend=redis_server.url(1), set_as_current=True)
    delayq = DelayQ(app)
    yield app
    delayq.close()


def test_a_result_class_of_the_app_s_own_stays_what_it_is(own_app):
    own_app.send_task("t", task_id="a", delayq_at=FAR)

    result = own_app.AsyncResult("a")

    assert isinstance(result, Own)
    assert (result.state, result.ready()) == ("SCHEDULED", "own")
    read = pickle.loads(pickle.dumps(result))
    assert (type(read), read.id) == (Own, "a")


@pytest.mark.parametrize("made_by", [str, lambda task_id: task_id], ids=["class", "function"])
def test_a_custom_asyncresult_that_is_no_class_of_results_stays_as_it_is(make_app, url, made_by):
    app = make_app(url)
    app.AsyncResult = made_by
    DelayQ(app)
    assert app.AsyncResult is made_by


# The result of a scheduled task.


@pytest.mark.parametrize("ignore", [False, True])
def test_the_result_of_a_task_that_ignores_results_says_so(app, add, delayq, ignore):
    first = add.apply_async((1,), ignore_result=ignore, delayq_at=FAR)
    assert first.ignored is delayq.result(first).ignored is ignore
    assert first.state == "SCHEDULED"


CALLS = {
    "task": (lambda add: add.s(1), AsyncResult),
    "group of one": (lambda add: group([add.s(1)]), GroupResult),
    "group": (lambda add: group(add.s(number) for number in range(3)), GroupResult),
    "chain": (lambda add: chain(add.s(1), add.s(2)), AsyncResult),
    "chord": (lambda add: chord([add.s(1), add.s(2)], add.s(3)), AsyncResult),
}


@pytest.mark.parametrize(("call", "kind"), CALLS.values(), ids=CALLS)
def test_the_result_of_an_id_is_what_its_call_returned_and_both_are_celery_s_and_scheduled_ones(
    add, delayq, call, kind
):
    """A group's has its members; that of another canvas is its last task's."""
    first = delayq.schedule(call(add), at=FAR)

    result = delayq.result(first.id)

    for one in (first, result):
        assert isinstance(one, ScheduledResult)
        assert isinstance(one, kind)
        assert (one.state, one.status, one.due.timestamp()) == ("SCHEDULED", "SCHEDULED", FAR)
    assert result == first
    assert getattr(result, "results", None) == getattr(first, "results", None)
    assert result.cancel()


def test_the_result_of_a_message_that_cannot_be_read_is_the_task_s(delayq_app, url):
    app = delayq_app(url, task_serializer="pickle", accept_content=["json", "pickle"])

    @app.task(name="add")
    def add(x):
        return x

    first = app.delayq.schedule(group(add.s(1), add.s(2)), at=FAR)
    app.conf.accept_content = ["json"]

    result = app.delayq.result(first.id)

    assert (result.id, result.due) == (first.id, first.due)
    assert result.cancel()


# An id that is used again has no past: neither in the result backend nor in this process.


_numbers = itertools.count(1)

ENDS = {
    "revoked": lambda backend, one: backend.mark_as_revoked(one, "cancelled"),
    "success": lambda backend, one: backend.mark_as_done(one, "old"),
    "failure": lambda backend, one: backend.mark_as_failure(one, KeyError("old")),
    "started": lambda backend, one: backend.store_result(one, None, states.STARTED),
}

WAYS = {
    "schedule": lambda add, one: add.app.delayq.schedule(add.s(1).set(task_id=one), at=FAR),
    "apply_async": lambda add, one: add.apply_async((1,), delayq_at=FAR, task_id=one),
    "send_task": lambda add, one: add.app.send_task("add", (1,), delayq_at=FAR, task_id=one),
    "bulk": lambda add, one: add.app.delayq.schedule_many(add, [Item((1,), task_id=one)], at=FAR),
}


@pytest.fixture
def used_id():
    return f"order-{next(_numbers)}"


def state(app, used_id):
    return app.backend.get_task_meta(used_id, cache=False)["status"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ENDS)
def test_the_old_state_of_an_id_is_gone_before_the_new_task_waits(app, add, used_id, way, end):
    ENDS[end](app.backend, used_id)
    assert app.AsyncResult(used_id).state != states.PENDING  # and this process has it cached
    WAYS[way](add, used_id)
    assert state(app, used_id) == states.PENDING
    assert app.backend.get_state(used_id) == states.PENDING


def test_a_get_does_not_read_a_message_of_the_cancelled_task(app, delayq, add, used_id):
    """This process is subscribed to the id, and the message of its REVOKED has arrived."""
    first = delayq.schedule(add.s(1).set(task_id=used_id), at=FAR)
    assert first.cancel()
    second = delayq.schedule(add.s(1).set(task_id=used_id), at=FAR)
    with pytest.raises(NoResultYet):
        second.get(timeout=0.01)
    app.backend.mark_as_done(used_id, "new")
    assert second.get(timeout=30) == "new"


def test_a_signature_that_keeps_its_id_is_scheduled_anew(app, delayq, add):
    signature = add.s(1)
    signature.freeze()
    delayq.schedule(signature, at=FAR).cancel()
    second = delayq.schedule(signature, at=FAR)
    assert state(app, second.id) == states.PENDING


def test_the_parts_of_a_canvas_have_no_past_either(app, delayq, add):
    canvas = group(add.s(1), add.s(2))
    ids = [one.id for one in canvas.freeze()]
    assert delayq.schedule(canvas, at=FAR).cancel()
    assert {state(app, one) for one in ids} == {states.REVOKED}
    delayq.schedule(canvas, at=FAR)
    assert {state(app, one) for one in ids} == {states.PENDING}


@pytest.mark.parametrize("way", ["apply_async", "bulk"])
def test_a_call_that_is_refused_leaves_the_old_result(app, delayq, add, used_id, way):
    app.backend.mark_as_done(used_id, "old")
    delayq.schedule(add.s(1), at=FAR, key="k")
    if way == "bulk":
        delayq.schedule_many(
            add, [Item((1,), task_id="x"), Item((2,), task_id=used_id, key="k")], at=FAR
        )
    else:
        with pytest.raises(AlreadyScheduled):
            add.apply_async((1,), delayq_at=FAR, task_id=used_id, delayq_key="k")
    assert app.AsyncResult(used_id).get(timeout=30) == "old"


@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_the_store_does_not_take_leaves_the_old_result(app, add, used_id, way):
    app.backend.mark_as_done(used_id, "old")
    app.conf.delayq_url = f"redis://127.0.0.1:{free_port()}/0"
    app.conf.task_publish_retry = False
    with pytest.raises(StoreUnavailable):
        WAYS[way](add, used_id)
    assert app.AsyncResult(used_id).get(timeout=30) == "old"


@pytest.fixture
def unanswered(app, used_id, swallowing, passing):
    """The store takes the call with this id, and no answer comes back."""
    proxy = swallowing(used_id.encode(), times=99)
    app.conf.delayq_url = f"redis://127.0.0.1:{proxy.port}/0"
    app.conf.update(delayq_timeout=PATIENCE, task_publish_retry=False)
    return passing(proxy)


@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_may_have_been_taken_leaves_no_old_result(app, add, used_id, way, unanswered):
    app.backend.mark_as_done(used_id, "old")
    with unanswered, pytest.raises(StoreUnavailable) as caught:
        WAYS[way](add, used_id)
    assert caught.value.may_have_run
    assert state(app, used_id) == states.PENDING


def test_an_id_of_celery_s_own_making_costs_the_backend_nothing(app, add, monkeypatch):
    monkeypatch.setattr(app.backend, "get_task_meta", lambda *_, **__: pytest.fail("asked"))
    assert add.delay_until(FAR, 1).id
    assert add.apply_async((1,), delayq_at=FAR).id
    add.apply_async((1,), delayq_at=FAR, task_id="mine", ignore_result=True)


def test_a_backend_that_fails_does_not_fail_the_call_and_is_left_alone(app, add, monkeypatch):
    asked = []

    def fail(used_id, **_):
        asked.append(used_id)
        raise ConnectionError("away")

    monkeypatch.setattr(app.backend, "get_task_meta", fail)
    for used_id in "abc":
        assert add.apply_async((1,), delayq_at=FAR, task_id=used_id).id == used_id
    assert asked == ["a"]
    app.delayq.services.backend_rests_until -= writing.RESTS
    assert add.apply_async((1,), delayq_at=FAR, task_id="d").id == "d"
    assert asked == ["a", "d"]


# A REVOKED that is on its way.


@pytest.fixture
def held_up(app, monkeypatch):
    """REVOKED is stored only once the calls in this list have been made."""
    plain, run = app.backend.mark_as_revoked, []

    def late(*args, **options):
        for one in [*run]:
            one()
        plain(*args, **options)

    monkeypatch.setattr(app.backend, "mark_as_revoked", late)
    return run


def delivered(app, used_id):
    app.delayq.schedule(app.tasks["add"].s(2).set(task_id=used_id), after=0)
    assert app.delayq.hand_over() == 1
    app.backend.mark_as_done(used_id, "new")


def scheduled_anew(app, used_id):
    return app.delayq.schedule(app.tasks["add"].s(2).set(task_id=used_id), at=FAR)


# A caller's use of the id while REVOKED is on its way, and its state after that.
MEANWHILE = {
    "scheduled": (scheduled_anew, states.PENDING),
    "delivered": (delivered, states.SUCCESS),
    "cancelled again": (lambda *it: scheduled_anew(*it).cancel(), states.REVOKED),
}


@pytest.mark.parametrize("way", MEANWHILE)
def test_a_revoked_that_lands_after_the_id_was_used_again_is_taken_back(
    app, add, used_id, held_up, way
):
    again, end = MEANWHILE[way]

    def do():
        held_up.clear()
        again(app, used_id)

    first = app.delayq.schedule(add.s(1).set(task_id=used_id), at=FAR)
    held_up.append(do)
    assert first.cancel()
    assert state(app, used_id) == end
    if again is scheduled_anew:
        assert app.delayq.cancel(used_id)
        assert state(app, used_id) == states.REVOKED


# Pickles and copies: what comes back is the same, and public names are all that a pickle names.


PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


@dataclasses.dataclass
class Order:
    """A program's own value, with a result in it."""

    reminder: ScheduledResult


def modules_in(pickled):
    """The modules of this package that a pickle names."""
    words = [word for _, word, _ in pickletools.genops(pickled) if isinstance(word, str)]
    return {word.split()[0] for word in words if word.startswith("celery_delayq")}


CANVASES = {
    "task": lambda add: add.s(1),
    "chain": lambda add: add.s(1) | add.s(2),
    "chord": lambda add: chord([add.s(1)], add.si(2)),
    "group": lambda add: group(add.s(1), add.s(2)),
}
PASSED = {
    **{
        f"pickle protocol {number}": lambda one, number=number: pickle.loads(
            pickle.dumps(one, number)
        )
        for number in PROTOCOLS
    },
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
OF_RESULTS = {**PASSED, "asdict": lambda one: dataclasses.asdict(Order(one))["reminder"]}


@pytest.mark.parametrize("way", OF_RESULTS.values(), ids=OF_RESULTS)
@pytest.mark.parametrize("canvas", CANVASES.values(), ids=CANVASES)
def test_a_result_that_comes_back_is_the_same(app, add, canvas, way):
    result = canvas(add).delay_until(FAR)

    again = way(result)

    assert type(again) is type(result)
    assert (again, again.parent, again.app) == (result, result.parent, app)
    assert (again.state, again.due, again.existed) == ("SCHEDULED", result.due, False)
    assert again.reschedule(at=FAR + 1)
    assert again.cancel() is Outcome.DONE
    assert again.state != "SCHEDULED"


def test_a_copy_in_another_app_s_turn_stays_with_its_own_app(app, add, delayq_app, url):
    result = add.delay_until(FAR, 1)
    delayq_app(url, delayq_prefix="other").set_current()

    for copied in (copy.copy(result), copy.deepcopy(result)):
        assert (copied.app, copied.backend, copied.state) == (app, result.backend, "SCHEDULED")


OF_EITHER = {
    "a call": lambda add: add.delay_until(FAR, 1),
    "an id": lambda add: add.app.AsyncResult("a"),
}


@pytest.mark.parametrize("made", OF_EITHER.values(), ids=OF_EITHER)
def test_without_a_delayq_a_result_comes_back_as_celery_s(make_app, redis_server, add, made):
    pickled = pickle.dumps(made(add))
    plain = make_app(redis_server.url(), redis_server.url(1))
    plain.set_current()

    again = pickle.loads(pickled)

    assert type(again) in (AsyncResult, plain.AsyncResult)
    assert again.state == "PENDING"


VALUES = {
    "a task": lambda delayq, add: delayq.get(add.delay_until(FAR, 1)),
    "an outcome": lambda *_: Outcome.DONE,
    "a state": lambda *_: State.DEAD,
    "an item": lambda *_: Item((1,), {"y": 2}, timedelta(1), "id", tags=["a"], conflict=None),
    "an item of one field": lambda *_: Item((1,)),
}


@pytest.mark.parametrize("way", PASSED.values(), ids=PASSED)
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_that_comes_back_is_the_same(delayq, add, value, way):
    given = value(delayq, add)

    again = way(given)

    assert type(again) is type(given)
    assert again == given


def test_an_exception_that_comes_back_is_the_same():
    for given in (Defer(after=5), errors.KeyHeld("id", "key"), errors.StoreUnavailable("a", "b")):
        again = pickle.loads(pickle.dumps(given))
        assert (type(again), again.args) == (type(given), given.args)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pickle_names_public_modules_only(delayq, add, protocol):
    given = [value(delayq, add) for value in VALUES.values()]
    given += [canvas(add).delay_until(FAR) for canvas in CANVASES.values()]
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    given += [one for one in kinds if issubclass(one, errors.DelayQError)]

    named = modules_in(pickle.dumps([given, Defer(after=5)], protocol))

    assert named == {"celery_delayq", "celery_delayq.errors"}


READER = """
import sys
from celery import Celery
from celery_delayq import DelayQ

app = Celery("reader", backend=sys.argv[1])
DelayQ(app)
error = app.AsyncResult("a").result
from celery_delayq.errors import KeyHeld
assert type(error) is KeyHeld, type(error)
print(error)
"""


def test_another_process_gets_a_task_s_error_from_a_json_backend(delayq_app, redis_server, url):
    app, error = delayq_app(url, redis_server.url(1)), errors.KeyHeld("id", "key")
    app.backend.mark_as_failure("a", error)

    told = run_forked("-c", READER, redis_server.url(1), cwd=ROOT)

    assert told.stdout.splitlines() == [str(error)], told.stderr


# Written by 1.0.0 with Celery 5.4: the results of a task and of a group, the task, and an item, an
# outcome, a state and an error.
FROZEN = """
gASVuAYAAAAAAABdlCiMCGJ1aWx0aW5zlIwHZ2V0YXR0cpSTlIwNY2VsZXJ5X2RlbGF5cZSMD1NjaGVkdWxlZFJlc3VsdJST
lIwIcmVzdG9yZWSUhpRSlIwNY2VsZXJ5LnJlc3VsdJSMC0FzeW5jUmVzdWx0lJOUKIwBYZSMFGNlbGVyeS5iYWNrZW5kcy5i
YXNllIwQdW5waWNrbGVfYmFja2VuZJSTlGgOjA9EaXNhYmxlZEJhY2tlbmSUk5QpfZSHlFKUTk5OdJR9lCiMBmR1ZV9tc5SK
BgDYwyy7A4wHZXhpc3RlZJSJjAhyZXBsaWNhc5ROjAdoYXNfcnVulIl1h5RSlGgDaAZoB4aUUpRoCowLR3JvdXBSZXN1bHSU
k5SMAWeUXZQojA9jZWxlcnkuYXBwLmJhc2WUjBFfdW5waWNrbGVfYXBwYXR0cpSTlGgLKIwBYpRoFU5OTnSUhpRSlGgmaAso
jAFjlGgVTk5OdJSGlFKUZYaUfZQoaBiKBgDYwyy7A2gZiWgaTmgbiXWHlFKUaASMDVNjaGVkdWxlZFRhc2uUk5QpgZR9lCiM
AmlklIwBYZSMBHRhc2uUjANhZGSUjAVxdWV1ZZSMBmNlbGVyeZSMA2R1ZZSMCGRhdGV0aW1llIwIZGF0ZXRpbWWUk5RDCgg0
AQEAAAAAAACUaD6MCHRpbWV6b25llJOUaD6MCXRpbWVkZWx0YZSTlEsASwBLAIeUUpSFlFKUhpRSlIwHY3JlYXRlZJRoQEMK
B+oLHBU1NQSzIJRoSYaUUpSMBXN0YXRllGgEjAVTdGF0ZZSTlIwJU0NIRURVTEVElIWUUpSMBnJlYXNvbpSMAJSMCGF0dGVt
cHRzlEsAjAVlcnJvcpRoV4wIbmV4dF90cnmUTowKZGVhZF9zaW5jZZROjAdjaGFuZ2VklGhAQwoH6gscFTU1BLMglGhJhpRS
lIwIcmV2aXNpb26UigdlMm42XWEGjANrZXmUaFeMBHRhZ3OUjAF4lIWUjAlwYXVzZWRfYnmUKYwGY3Vyc29ylGhXjAhwcmlv
cml0eZRLAIwIcHV0X29mZnOUSwCMBmJlaGluZJRoV4wMYmVoaW5kX3VudGlslE6MCV9lbnZlbG9wZZR9lCiMBGJvZHmUjGhX
MXN4WFN3Z2UzMHNJSHNpWTJGc2JHSmhZMnR6SWpvZ2JuVnNiQ3dnSW1WeWNtSmhZMnR6SWpvZ2JuVnNiQ3dnSW1Ob1lXbHVJ
am9nYm5Wc2JDd2dJbU5vYjNKa0lqb2diblZzYkgxZJSMEGNvbnRlbnQtZW5jb2RpbmeUjAV1dGYtOJSMDGNvbnRlbnQtdHlw
ZZSMEGFwcGxpY2F0aW9uL2pzb26UjApwcm9wZXJ0aWVzlH2UKIwOY29ycmVsYXRpb25faWSUaDiMCHJlcGx5X3RvlIwkMDhj
NzI4NjgtZjE0My0zMWRiLWFiODEtZDhhMDA5YTU2ZjAwlIwNZGVsaXZlcnlfbW9kZZRLAowNZGVsaXZlcnlfaW5mb5R9lCiM
CGV4Y2hhbmdllGhXjAtyb3V0aW5nX2tleZSMBmNlbGVyeZR1jAhwcmlvcml0eZRLAIwNYm9keV9lbmNvZGluZ5SMBmJhc2U2
NJSMDGRlbGl2ZXJ5X3RhZ5SMJDI2ZjkxOTg3LTg2YWQtNGI4Mi04ZjE1LTA2MjYwMjk2OThmYZR1jAdoZWFkZXJzlH2UKIwE
bGFuZ5SMAnB5lIwEdGFza5RoOowCaWSUaDiMBnNoYWRvd5ROjANldGGUTowHZXhwaXJlc5ROjAVncm91cJROjAtncm91cF9p
bmRleJROjAdyZXRyaWVzlEsAjAl0aW1lbGltaXSUXZQoTk5ljAdyb290X2lklGg4jAlwYXJlbnRfaWSUTowIYXJnc3JlcHKU
jAQoMSwplIwKa3dhcmdzcmVwcpSMAnt9lIwGb3JpZ2lulIwLZ2VuMTAxNDFAdm2UjA1pZ25vcmVfcmVzdWx0lImMFXJlcGxh
Y2VkX3Rhc2tfbmVzdGluZ5RLAIwPc3RhbXBlZF9oZWFkZXJzlE6MBnN0YW1wc5R9lIwKZGVsYXlxX2R1ZZSKBgDYwyy7A3V1
dWJoBIwESXRlbZSTlChLAYWUfZROTnSUgZRoBIwHT3V0Y29tZZSTlIwEZG9uZZSFlFKUaFKMBERFQUSUhZRSlIwUY2VsZXJ5
X2RlbGF5cS5lcnJvcnOUjAdLZXlIZWxklJOUaDdoYU6HlFKUfZQojAd0YXNrX2lklGg3jAZob2xkZXKUaGGMBXVudGlslE51
YmUu
"""


def test_a_pickle_of_the_first_release_can_be_read(app):
    one, many, task, *values = pickle.loads(base64.b64decode(FROZEN))

    for result in (one, many):
        assert isinstance(result, ScheduledResult)
        assert (result.due, result.app) == (datetime.fromtimestamp(FAR, timezone.utc), app)
        assert result.cancel() is Outcome.NOT_FOUND
    assert (one.id, many.id, [part.id for part in many.results]) == ("a", "g", ["b", "c"])
    assert (task.id, task.due, task.args, task.tags) == ("a", one.due, (1,), ("x",))
    held = errors.KeyHeld("id", "key")
    assert values[:3] == [Item((1,)), Outcome.DONE, State.DEAD]
    assert (type(values[3]), values[3].args) == (errors.KeyHeld, held.args)
