"""``run_due``: due tasks run in the test's own process, as in a worker."""

import pytest
from celery import chord
from celery.exceptions import NotRegistered, Reject, TaskRevokedError
from celery.worker.request import Request

from celery_delayq import AlreadyScheduled
from celery_delayq.errors import EndlessTasks, KeyHeld

pytestmark = pytest.mark.libraries


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
    assert states_of(delayq.run_due()) == ["IGNORED"]
    with pytest.raises(AlreadyScheduled):
        shop.delayq.schedule(shop.remind.s(8), **HELD)
    shop.closed.clear()
    delayq.advance(minutes=1)
    assert states_of(delayq.run_due()) == ["SUCCESS"]
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


def test_a_task_that_puts_itself_off_waits_again(shop, delayq):
    shop.closed.add(1)
    shop.locked.delay(1)

    [put_off] = delayq.run_due()
    assert (put_off.state, put_off.get()) == ("IGNORED", None)
    shop.closed.clear()
    delayq.advance(seconds=5)

    [ran] = delayq.run_due()
    assert (ran.id, ran.get()) == (put_off.id, "opened 1")


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
def test_a_task_expires_by_the_test_s_clock(shop, delayq, after):
    shop.remind.apply_async((7,), expires=600, task_id="a")
    delayq.advance(seconds=after)

    [result] = delayq.run_due()

    assert result.state == ("SUCCESS" if after < 600 else "REVOKED")
    if after > 600:
        with pytest.raises(TaskRevokedError):
            result.get()


def test_the_id_of_an_expired_task_may_be_used_again(shop, delayq):
    shop.remind.apply_async((7,), expires=60, task_id="a")
    delayq.advance(seconds=61)
    delayq.run_due()

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
