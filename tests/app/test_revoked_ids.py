"""What is scheduled under an id that workers were told to revoke is another task, and runs."""

import json
import math
from types import SimpleNamespace

import pytest
from celery.worker import state as worker_state
from celery.worker.control import Panel, revoke

from celery_delayq import Outcome, clock
from celery_delayq.integration import control, remembered
from celery_delayq.integration.adopting.worker import AdoptingStep
from celery_delayq.operations.changing import let_it_end
from tests.app.network import Listener
from tests.app.support import FAR, LONG_AGO, only_message, redis_ms

pytestmark = pytest.mark.libraries

RETRY = {"retries": 1}


class Worker:
    """As much of one as a revoke and a message meet: Celery's command, and what drops its ids."""

    connection_errors = ()

    def __init__(self, app):
        self.app = app
        self.ran = []
        AdoptingStep(self)
        self.connect()

    def connect(self):
        self.strategies = {"t": self._strategy}
        self.update_strategies()

    def update_strategies(self):
        """Replaced by the step."""

    def _strategy(self, message, *_):
        # As Celery's, which asks the request that it makes of the message.
        if message.properties["correlation_id"] not in worker_state.revoked:
            self.ran.append(message.headers.get("delayq_due"))

    def revoke(self, task_id, **options):
        return Panel.data["revoke"](SimpleNamespace(app=self.app), task_id, **options)

    def receive(self, message, **headers):
        """What came of one more message: whether it ran."""
        self.ran.clear()
        given = SimpleNamespace(
            headers={**message["headers"], **headers}, properties=message["properties"]
        )
        self.strategies["t"](given, None, None)
        return len(self.ran) == 1


@pytest.fixture
def worker(app, monkeypatch):
    monkeypatch.setitem(Panel.data, "revoke", revoke)
    control.wrap_panel()
    remembered.remembered_here.cache_clear()
    yield Worker(app)
    worker_state.revoked.clear()
    worker_state.requests.clear()


@pytest.fixture
def deliver(app, delayq, redis):
    """A message of the task "a", scheduled and handed over."""

    def deliver(**options):
        app.send_task("t", task_id="a", **(options or {"delayq_after": 0}))
        assert delayq.hand_over() == 1
        key, message = only_message(redis)
        redis.delete(key)
        return json.loads(message)

    return deliver


@pytest.fixture(params=["told by the app", "told on the command line"])
def revoke_it(request, app, delayq, worker, redis):
    """Tell the worker, by the app that says when, or as `celery control` does."""

    def tell():
        told = {"delayq_told": math.floor(redis_ms(redis))}
        let_it_end()
        worker.revoke("a", **(told if request.param == "told by the app" else {}))

    return tell


def test_what_was_meant_is_dropped(worker, deliver, revoke_it):
    meant = deliver()

    revoke_it()

    assert not worker.receive(meant)
    assert not worker.receive(meant)


def test_what_is_scheduled_since_runs_and_what_was_meant_is_still_dropped(
    worker, deliver, revoke_it
):
    meant = deliver()
    revoke_it()
    since = deliver()

    assert worker.receive(since)
    assert not worker.receive(meant)
    assert worker.receive(since)


def test_a_second_revoke_means_the_second_task(worker, deliver, revoke_it):
    revoke_it()
    second = deliver()
    assert worker.receive(second)

    revoke_it()

    assert not worker.receive(second)
    assert worker.receive(deliver())


def test_a_retry_of_what_was_meant_is_dropped(worker, deliver, revoke_it):
    revoke_it()

    assert not worker.receive(deliver(), **RETRY)


def test_a_retry_of_what_was_scheduled_since_runs(worker, deliver, revoke_it):
    revoke_it()
    assert worker.receive(deliver())

    assert worker.receive(deliver(), **RETRY)


def test_a_plain_message_under_the_id_is_dropped_as_by_celery(worker, deliver, revoke_it):
    revoke_it()
    plain = deliver()
    del plain["headers"]["delayq_due"]

    assert not worker.receive(plain)
    assert worker.receive(deliver())
    assert not worker.receive(plain)


def test_after_celery_s_three_hours_nothing_is_dropped(worker, deliver, revoke_it, monkeypatch):
    meant = deliver()
    revoke_it()
    assert worker.receive(deliver())

    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now + remembered.FOR + 1)

    assert worker.receive(meant)


def test_what_waits_in_the_worker_is_dropped_before_its_id_is_free(worker, deliver, revoke_it):
    looked = []
    waiting = SimpleNamespace(revoked=lambda: looked.append("a" in worker_state.revoked))
    revoke_it()
    worker_state.requests["a"] = waiting

    assert worker.receive(deliver())
    assert looked == [True]


def test_what_runs_is_left_alone(worker, deliver, revoke_it, monkeypatch):
    running = SimpleNamespace(revoked=lambda: pytest.fail("it runs already"))
    revoke_it()
    worker_state.requests["a"] = running
    monkeypatch.setattr(worker_state, "active_requests", [running])

    assert worker.receive(deliver())


def test_ids_that_other_workers_remember_mean_what_was_due_when_they_told(worker, deliver):
    meant = deliver(delayq_at=LONG_AGO)
    worker_state.revoked.add("a")
    worker.connect()

    assert not worker.receive(meant)
    assert worker.receive(deliver())


def test_ids_that_came_with_the_broker_s_return_mean_what_was_due_by_then(
    worker, deliver, redis, monkeypatch
):
    began = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: began + 100)
    message = deliver()  # a hundred seconds before the broker returned, by what follows
    worker_state.revoked.add("a")
    monkeypatch.setattr(clock, "monotonic", lambda: began + 200)
    worker.connect()

    assert not worker.receive(message)


def test_where_the_store_could_not_be_asked_whatever_comes_is_dropped(
    worker, app, deliver, delayq, delayq_app
):
    since = deliver()
    with Listener() as silent:
        away = delayq_app(f"redis://127.0.0.1:{silent.port}/0", delayq_timeout=0.1)
        Panel.data["revoke"](SimpleNamespace(app=away), "a")

    assert not worker.receive(since)
    assert not worker.receive(deliver())


def test_a_worker_that_hears_late_cancels_nothing_that_was_scheduled_since(
    worker, app, add, delayq, redis
):
    told = math.floor(redis_ms(redis))
    add.s(1).set(task_id="a").delay_until(FAR)

    worker.revoke("a", delayq_told=told)

    assert delayq.get("a") is not None


def test_no_more_ids_are_remembered_than_celery_does(monkeypatch):
    monkeypatch.setattr(remembered, "MOST", 2)
    state = SimpleNamespace(revoked=set())
    one = remembered.Remembered(state)

    one.told(["a", "b"], 1)
    one.told(["a", "c"], 2)

    assert {*one._told} == {"a", "c"}


@pytest.mark.parametrize("by", ["cancel", "revoke"])
def test_what_is_scheduled_after_a_revoke_is_due_in_a_later_millisecond(
    app, delayq, monkeypatch, by
):
    """What is due at once is due in the millisecond that has begun, as what was revoked may be."""
    sent, slept = [], []
    monkeypatch.setattr(app.control, "broadcast", lambda *said, **_: sent.append(said))
    monkeypatch.setattr(clock, "sleep", lambda seconds: slept.append((seconds, len(sent))))

    delayq.cancel("a", revoke=True) if by == "cancel" else app.control.revoke("a")

    assert slept == [(0.002, 0)]
    assert len(sent) == 1


def test_cancel_tells_the_workers_when(app, add, delayq, redis, monkeypatch):
    sent = []
    monkeypatch.setattr(app.control, "broadcast", lambda *said, **more: sent.append((said, more)))
    add.s(1).set(task_id="a").delay_until(LONG_AGO)
    delayq.hand_over()

    assert delayq.cancel("a", revoke=True) is Outcome.HANDED_OVER

    [(said, more)] = sent
    assert said == ("revoke",)
    told = more["arguments"].pop("delayq_told")
    assert more == {"arguments": {"task_id": "a", "terminate": False}}
    assert redis_ms(redis) - 60_000 < told <= redis_ms(redis)
