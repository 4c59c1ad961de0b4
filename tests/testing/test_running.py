"""Due tasks run in the test's own process as in a worker, or in a real one in a thread."""

import logging
import os
import sys
import warnings

import pytest
import time_machine
from celery import _state, chord
from celery.exceptions import NotRegistered, Reject, TaskRevokedError
from celery.worker import state as worker_state
from celery.worker.request import Request
from freezegun import freeze_time

from celery_delayq import AlreadyScheduled
from celery_delayq.errors import CannotIsolate, EndlessTasks, KeyHeld
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries


# ``run_due``: due tasks run in the test's own process, as in a worker.


def states_of(ran):
    return [result.state for result in ran]


def values_of(ran):
    return [result.value for result in ran]


def test_a_task_runs_when_it_is_due_and_no_earlier(shop, delayq):
    shop.remind.delay_for(1800, 7)
    [task] = delayq.scheduled()
    assert (task.task, task.args) == ("remind", (7,))

    delayq.advance(minutes=25)
    assert delayq.run_due() == []
    delayq.advance(minutes=5)
    [result] = delayq.run_due()

    assert result.get() == result.value == "reminded 7"
    assert (result.id, result.state, result.task) == (task.id, "SUCCESS", "remind")
    assert (list(result.args), result.kwargs) == ([7], {})
    assert delayq.scheduled() == []


def test_a_task_knows_what_it_knows_in_a_worker(shop, delayq):
    signature = shop.asked.s(1, b=2).set(task_id="a", queue="mail", headers={"ours": "x"})
    due = delayq.schedule(signature, after=60).due

    delayq.advance(minutes=1)
    [result] = delayq.run_due()

    assert result.get() == {
        "id": "a",
        "args": ([1], {"b": 2}),
        "due": due.isoformat(),
        "eager": False,
        "headers": "x",
        "routing_key": "mail",
    }


def test_tasks_run_in_the_order_of_their_times_whatever_their_queues(shop, delayq):
    for number, queue in enumerate(["b", "a", "c", "a"]):
        shop.number.s(number).set(queue=queue).delay_for(60 - 15 * number)
    shop.number.delay("sent at once")

    delayq.advance(minutes=1)

    assert values_of(delayq.run_due()) == ["sent at once", 3, 2, 1, 0]


HELD = {"after": 60, "key": "k", "unique_until": "finished", "unique_for": 60}


@pytest.mark.parametrize("name", ["remind", "boom", "forgets"])
def test_a_key_that_is_held_until_its_task_has_run_is_free_then(shop, delayq, name):
    task = getattr(shop, name)
    shop.delayq.schedule(task.s(7) if name == "remind" else task.s(), **HELD)
    delayq.advance(minutes=1)
    delayq.run_due()
    assert shop.delayq.schedule(shop.remind.s(8), **HELD)


def test_a_message_that_is_requeued_frees_a_key_only_if_it_was_acknowledged(shop, delayq):
    def requeue():
        raise Reject("later", requeue=True)

    for name, is_late in [("early", False), ("late", True)]:
        task = shop.app.task(requeue, name=name, acks_late=is_late)
        shop.delayq.schedule(task.s(), **{**HELD, "key": name})
    delayq.advance(minutes=1)
    delayq.run_due()

    assert shop.delayq.schedule(shop.remind.s(8), **{**HELD, "key": "early"})
    with pytest.raises(KeyHeld):
        shop.delayq.schedule(shop.remind.s(8), **{**HELD, "key": "late"})


def test_a_key_is_held_while_its_task_is_to_be_retried_or_puts_itself_off(shop, delayq):
    shop.delayq.schedule(shop.flaky.s(1), **HELD)
    delayq.advance(minutes=1)
    assert states_of(delayq.run_due()) == ["RETRY"]
    delayq.advance(minutes=9)
    with pytest.raises(KeyHeld):
        shop.delayq.schedule(shop.remind.s(8), **HELD)
    delayq.advance(minutes=1)
    assert states_of(delayq.run_due()) == ["SUCCESS"]

    shop.closed.add("box")
    shop.delayq.schedule(shop.locked.s("box"), **HELD)
    delayq.advance(minutes=1)
    [put_off] = delayq.run_due()
    assert (put_off.state, put_off.get()) == ("IGNORED", None)
    with pytest.raises(AlreadyScheduled):
        shop.delayq.schedule(shop.remind.s(8), **HELD)
    shop.closed.clear()
    delayq.advance(seconds=5)
    [ran] = delayq.run_due()
    assert (ran.id, ran.get()) == (put_off.id, "opened box")
    assert shop.delayq.schedule(shop.remind.s(8), **HELD)


def test_a_task_that_raises_has_the_error_as_its_result(shop, delayq):
    shop.boom.delay()
    shop.remind.delay(7)

    failed, ran = delayq.run_due()

    assert (failed.state, ran.state) == ("FAILURE", "SUCCESS")
    assert "in boom" in failed.traceback
    with pytest.raises(ValueError, match="boom"):
        failed.get()


@pytest.mark.parametrize("by_setting", [True, False])
def test_the_error_of_a_task_is_raised_where_that_is_wanted_and_the_rest_runs_next_time(
    shop, delayq, by_setting
):
    shop.app.conf.task_eager_propagates = by_setting
    shop.boom.delay()
    shop.remind.delay(7)

    with pytest.raises(ValueError, match="boom"):
        delayq.run_due(propagate=None if by_setting else True)

    assert values_of(delayq.run_due()) == ["reminded 7"]


def test_a_result_that_no_backend_keeps_can_be_read(shop, delayq):
    shop.forgets.delay_for(60)
    delayq.advance(minutes=1)

    [result] = delayq.run_due()

    assert result.get() == "forgotten"
    assert shop.app.AsyncResult(result.id).state == "PENDING"


@pytest.mark.parametrize("captured", [True, False])
def test_a_retry_waits_again(shop, delayq, captured):
    shop.app.conf.delayq_capture_eta = captured
    task_id = shop.flaky.delay(2).id

    for _ in range(2):
        [retried] = delayq.run_due()
        assert (retried.id, retried.state) == (task_id, "RETRY")
        assert len(delayq.scheduled()) == captured
        delayq.advance(seconds=300)
        assert delayq.run_due() == []
        delayq.advance(seconds=300)

    [ran] = delayq.run_due()
    assert (ran.id, ran.get()) == (task_id, 2)


def test_links_and_canvases_run_as_far_as_they_go(shop, delayq):
    shop.remind.s(1).set(link=shop.remind.si(2)).delay_for(10)
    delayq.schedule(shop.remind.si(3) | shop.remind.si(4), after=20)
    header = [shop.number.si(number) for number in (5, 6)]
    last = delayq.schedule(chord(header, shop.total.s()), after=30)

    delayq.advance(seconds=30)
    ran = delayq.run_due()

    assert [value for value in values_of(ran) if str(value).startswith("reminded")] == [
        f"reminded {user}" for user in (1, 2, 3, 4)
    ]
    assert last.get(timeout=30) == 11


def test_tasks_that_are_sent_meanwhile_run_too_up_to_the_limit(shop, delayq):
    shop.endless.delay()

    with pytest.raises(EndlessTasks) as raised:
        delayq.run_due(limit=10)

    assert str(raised.value).startswith("run_due() ran 10 tasks, the last of them endless, and")


@pytest.mark.parametrize("after", [300, 601])
def test_a_task_expires_by_the_test_s_clock_and_its_id_may_be_used_again(shop, delayq, after):
    shop.remind.apply_async((7,), expires=600, task_id="a")
    delayq.advance(seconds=after)

    [result] = delayq.run_due()

    assert result.state == ("SUCCESS" if after < 600 else "REVOKED")
    if after > 600:
        with pytest.raises(TaskRevokedError):
            result.get()
        shop.remind.apply_async((7,), task_id="a")
        assert states_of(delayq.run_due()) == ["SUCCESS"]


def test_a_task_that_the_app_does_not_have_fails(shop, delayq):
    shop.app.send_task("elsewhere", delayq_after=60)
    delayq.advance(minutes=1)

    [result] = delayq.run_due()

    assert (result.state, result.task) == ("FAILURE", "elsewhere")
    with pytest.raises(NotRegistered):
        result.get()


noted = []


class Noting(Request):
    def execute(self, *args, **kwargs):
        noted.append(self.id)
        return super().execute(*args, **kwargs)


def test_a_task_s_own_class_of_requests_is_used(shop, delayq, monkeypatch):
    monkeypatch.setattr(shop.app.tasks["remind"], "Request", f"{__name__}:Noting")

    result = shop.remind.delay(7)
    delayq.run_due()

    assert noted == [result.id]


def test_a_cancelled_or_paused_task_does_not_run(shop, delayq):
    shop.remind.delay_for(60, 1).cancel()
    shop.remind.s(2).set(queue="mail").delay_for(60)
    delayq.pause(queue="mail")
    delayq.advance(minutes=1)
    assert delayq.run_due() == []

    delayq.resume(queue="mail")

    assert values_of(delayq.run_due()) == ["reminded 2"]


def test_tasks_that_run_eagerly_leave_nothing_to_run(shop, delayq):
    shop.app.conf.task_always_eager = True

    assert shop.remind.delay_for(60, 7).get() == "reminded 7"

    assert delayq.scheduled() == []
    assert delayq.run_due() == []


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ({}, [2, 1, 3]),
        ({"task": "remind"}, [2, 3]),
        ({"key": "a"}, [1]),
        ({"tag": "b"}, [2, 1]),
        ({"tag": "b", "task": "remind"}, [2]),
        ({"queue": "mail"}, [3]),
        ({"key": "a", "task": "remind"}, []),
    ],
)
def test_scheduled_tasks_are_listed_in_due_order(shop, delayq, chosen, found):
    delayq.schedule(shop.number.s(1), after=60, key="a", tags=["b"])
    delayq.schedule(shop.remind.s(2), after=50, tags=["b"])
    delayq.schedule(shop.remind.s(3).set(queue="mail"), after=70)

    assert [task.args[0] for task in delayq.scheduled(**chosen)] == found


# ``worker``: a real worker with its scanner, in a thread of the test's process.


SOON = 30  # seconds that a test waits on a busy machine


@pytest.fixture
def asleep(shop):
    """Only a notification wakes the scanner: by itself it scans every five minutes."""
    shop.app.conf.delayq_safety_interval = 300


def wait_until_it_sleeps(delayq):
    """Wait for its first scan, after which it counts as alive and which finds nothing."""
    eventually(lambda: delayq.counts().scanners == 1, timeout=SOON)


def test_advance_wakes_its_scanner(shop, asleep, delayq):
    with delayq.worker():
        wait_until_it_sleeps(delayq)
        result = shop.remind.delay_for(1800, 7)
        delayq.advance(minutes=30)
        assert result.get(timeout=SOON) == "reminded 7"


def test_a_worker_s_scanner_counts_as_alive_however_much_time_passes(asleep, delayq):
    with delayq.worker():
        wait_until_it_sleeps(delayq)
        delayq.advance(days=1)
        assert delayq.counts().scanners == 1
    assert delayq.counts().scanners == 0


def test_a_worker_runs_what_was_sent_before_and_what_a_task_sends(shop, delayq):
    plain = shop.remind.delay(1)
    last = delayq.schedule(shop.remind.si(2) | shop.remind.si(3), after=60)
    with delayq.worker():
        assert plain.get(timeout=SOON) == "reminded 1"
        delayq.advance(minutes=1)
        assert last.get(timeout=SOON) == "reminded 3"


def test_a_worker_takes_the_options_that_celery_s_own_takes(shop, delayq):
    with delayq.worker(queues=["mail"], pool="threads", concurrency=2) as worker:
        result = shop.remind.s(1).set(queue="mail").delay_for(60)
        delayq.advance(minutes=1)
        assert result.get(timeout=SOON) == "reminded 1"
        assert worker.concurrency == 2

    shop.remind.delay(2)  # to a queue that this worker did not consume
    assert [ran.value for ran in delayq.run_due()] == ["reminded 2"]


def test_a_worker_follows_another_and_run_due_goes_on_from_there(shop, delayq):
    for user in (1, 2):
        with delayq.worker():
            assert shop.remind.delay(user).get(timeout=SOON) == f"reminded {user}"
    shop.remind.delay(3)
    assert [ran.value for ran in delayq.run_due()] == ["reminded 3"]


def test_meanwhile_nothing_else_runs_tasks(delayq):
    with delayq.worker():
        with pytest.raises(CannotIsolate, match=r"inside worker\(\)"):
            delayq.run_due()
        with pytest.raises(CannotIsolate, match="one at a time"), delayq.worker():
            pass


def test_time_machine_moves_the_clock_as_soon_as_the_scanner_is_told(shop, asleep, delayq):
    with delayq.worker():
        wait_until_it_sleeps(delayq)
        result = shop.remind.delay_until("2100-01-01T09:00:00Z", 7)
        with time_machine.travel("2100-01-01T09:00:00Z"):
            delayq.advance()
            assert result.get(timeout=SOON) == "reminded 7"


def test_a_worker_starts_runs_and_ends_where_freezegun_stops_the_time(shop, asleep, delayq):
    with freeze_time("2030-01-01T09:00:00Z") as frozen, delayq.worker():
        wait_until_it_sleeps(delayq)
        result = shop.remind.delay_for(1800, 7)
        frozen.tick(1800)
        delayq.advance()
        assert result.get(timeout=SOON) == "reminded 7"


def process():
    """Changes that such a worker might leave behind in this process."""
    root = logging.getLogger()
    return {
        "current": _state._tls.current_app,
        "default": _state.default_app,
        "joins": _state.task_join_will_block(),
        "revoked": set(worker_state.revoked),
        "logging": (root.handlers[:], root.level),
        "streams": (sys.stdout, sys.stderr),
        "warnings": (warnings.showwarning, warnings.filters[:]),
        "variables": dict(os.environ),
    }


def test_a_worker_leaves_no_trace(make_app, shop, delayq, monkeypatch):
    make_app()  # which is the current one now
    logging.captureWarnings(False)
    for name in [name for name in os.environ if name.startswith(("CELERY_LOG_", "_MP_FORK_"))]:
        monkeypatch.delenv(name)
    before = process()
    with delayq.worker():
        shop.app.control.revoke("a")
        eventually(lambda: "a" in worker_state.revoked, timeout=SOON)
        assert shop.remind.delay(1).get(timeout=SOON) == "reminded 1"
    after = process()

    # Celery lets its own deprecations be shown; pytest puts the filters back after each test.
    shown, earlier = after.pop("warnings"), before.pop("warnings")
    assert shown[0] is earlier[0]
    assert after == before
