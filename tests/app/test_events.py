"""Events of scheduled and cancelled tasks: `task-sent` and `task-revoked`, as Celery has them."""

import multiprocessing
import socket
import threading
import time

import pytest
from celery import chain, group
from celery.app.trace import build_tracer
from kombu import Connection, Exchange, Queue
from redis import Redis

from celery_delayq.contrib import events
from celery_delayq.core import clock
from celery_delayq.core.message.headers import LAUNCH
from tests.app.support import FAR, LONG_AGO, received
from tests.lab.faults.proxy import Proxy
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries

DUE = "2100-01-01T00:00:00+00:00"
# Fields that differ in any two events.
OWN = ("timestamp", "clock", "local_received", "utcoffset", "pid")


@pytest.fixture(autouse=True)
def patient(limits):
    """Neither a broker that is starved for seconds is away, nor is a connection idle by then."""
    limits(events_answer_s=PATIENCE, events_idle_s=3600.0)


@pytest.fixture
def impatient(limits):
    """Until it is called, a broker that hangs is soon away: ``impatient()``."""
    with limits.within(events_answer_s=1.0) as undo:
        yield undo


@pytest.fixture
def app(delayq_app, url):
    return delayq_app(url, task_send_sent_event=True)


def told(seen):
    return [(event["type"], event["uuid"]) for event in seen]


def facts(event):
    return {name: value for name, value in event.items() if name not in OWN}


@pytest.fixture
def both(delayq_app, make_app, url):
    """An app without a DelayQ, and one with it."""
    conf = {"accept_content": ["json", "pickle"], "task_send_sent_event": True}
    return make_app(url, **conf), delayq_app(url, **conf)


@pytest.mark.parametrize(
    "options",
    [
        {"args": (1,), "kwargs": {"y": "é\n"}},
        {"args": ("secret",), "argsrepr": "('***',)", "root_id": "r", "parent_id": "p"},
        {"queue": "mail", "priority": 3, "expires": clock.from_ms((FAR + 60) * 1000)},
        {"queue": Queue("topics", Exchange("topics", "topic"), routing_key="a.b")},
        {"exchange": "there", "routing_key": "x.y"},
        {"args": (1,), "serializer": "pickle", "compression": "zlib", "shadow": "other"},
        {"retries": 2, "headers": {"stamp": "x"}, "reply_to": "me"},
    ],
    ids=",".join,
)
def test_the_event_is_celery_s_own_with_the_due_time_for_an_eta(both, watching, options):
    plain, ours = both

    with watching(ours) as wait_for:
        plain.send_task("t", task_id="a", eta=clock.from_ms(FAR * 1000), **options)
        ours.send_task("t", task_id="a", delayq_at=FAR, **options)
        theirs, own = wait_for(2)

    assert facts(own) == facts(theirs)
    assert own["eta"] == DUE
    assert set(own) == set(theirs)
    assert own["pid"] == theirs["pid"]


def test_an_expiry_that_counts_from_the_due_time_is_told_as_a_time(app, watching):
    with watching(app) as wait_for:
        app.send_task("t", task_id="a", delayq_at=FAR, expires=60)
        [event] = wait_for(1)

    assert event["expires"] == "2100-01-01T00:01:00.000000+00:00"


def test_each_item_of_a_bulk_is_sent_once(app, add, watching):
    with watching(app) as wait_for:
        bulk = app.delayq.schedule_many(add, [((one,), {}) for one in range(250)], at=FAR)
        seen = wait_for(250)

    assert told(seen) == [("task-sent", task_id) for task_id in bulk.ids]
    assert [event["args"] for event in seen] == [f"({one},)" for one in range(250)]
    assert {event["eta"] for event in seen} == {DUE}
    # Celery makes the first messages; the rest are copied from them.
    first, *_, last = ({**facts(event), "uuid": "", "args": "", "root_id": ""} for event in seen)
    assert first == last


def test_a_task_that_is_cancelled_is_revoked_once(app, watching):
    with watching(app) as wait_for:
        for task_id in ("a", "b", "c"):
            app.send_task("t", task_id=task_id, delayq_at=FAR)
        app.delayq.cancel("a")
        app.control.revoke("b")
        app.delayq.select(all=True).cancel()
        seen = wait_for(6)

    assert told(seen[3:]) == [("task-revoked", task_id) for task_id in "abc"]
    assert [seen[3][name] for name in ("terminated", "signum", "expired")] == [False, None, False]
    # One name for all processes of this host, as monitors show the sender as a worker.
    assert seen[3]["hostname"] == f"delayq@{socket.gethostname()}"


def test_a_replaced_task_and_one_that_is_too_late_have_a_revoked_event(app, watching):
    with watching(app) as wait_for:
        for task_id in ("a", "b"):
            app.send_task(
                "t", task_id=task_id, delayq_at=FAR, delayq_key="k", delayq_conflict="replace"
            )
        app.send_task("t", task_id="c", delayq_at=LONG_AGO, delayq_late="skip", delayq_grace=1)
        app.delayq.hand_over()
        seen = wait_for(5)

    revoked = [task_id for kind, task_id in told(seen) if kind == "task-revoked"]
    assert revoked == ["a", "c"]


def test_a_move_and_a_hand_over_send_none_and_a_task_that_celery_sends_one(app, watching):
    with watching(app) as wait_for:
        app.send_task("t", task_id="a", delayq_at=FAR)
        app.delayq.reschedule("a", FAR + 1)
        app.delayq.edit("a", priority=1)
        app.delayq.run_now("a")
        app.delayq.hand_over()
        app.send_task("t", task_id="b")
        assert told(wait_for(2)) == [("task-sent", "a"), ("task-sent", "b")]


def test_a_retry_is_sent_with_its_number(delayq_app, url, watching):
    app = delayq_app(url, task_send_sent_event=True, delayq_capture_eta=True)

    @app.task(name="retrying", bind=True, shared=False)
    def task(self):
        raise self.retry(countdown=3600)

    with watching(app) as wait_for:
        build_tracer(task.name, task, app=app)("a", (), {}, {"id": "a"})
        [event] = wait_for(1)

    assert (event["uuid"], event["retries"], event["name"]) == ("a", 1, "retrying")


def test_a_canvas_is_sent_as_the_task_that_applies_it(app, add, watching):
    with watching(app) as wait_for:
        result = chain(add.s(1), add.s(2)).delay_until(FAR)
        [event] = wait_for(1)

    assert (event["uuid"], event["name"]) == (result.id, "celery_delayq.launch")
    assert event["args"] == "chain(add, ...)"


def test_each_part_of_a_canvas_is_sent_when_it_is_launched(app, add, watching, redis):
    group(add.s(1).set(queue="mail"), add.s(2)).delay_until(LONG_AGO)
    app.delayq.hand_over()
    [message] = received(app, "mail")
    steps, ids = message.payload[0]

    with watching(app) as wait_for:
        app.tasks[LAUNCH](steps, ids)
        seen = wait_for(2)

    assert [(one["type"], one["uuid"], one["queue"]) for one in seen] == [
        ("task-sent", ids[0], "mail"),
        ("task-sent", ids[1], "celery"),
    ]


def test_celery_s_state_takes_our_events(app, watching):
    state = app.events.State()
    with watching(app) as wait_for:
        app.send_task("t", (1,), task_id="a", delayq_at=FAR)
        app.send_task("t", task_id="b", delayq_at=FAR)
        app.delayq.cancel("b")
        for event in wait_for(3):
            state.event(event)

    a, b = state.tasks["a"], state.tasks["b"]
    assert (a.state, a.name, a.args, a.eta, a.worker) == ("PENDING", "t", "(1,)", DUE, None)
    assert (b.state, b.worker.hostname) == ("REVOKED", f"delayq@{socket.gethostname()}")


def test_the_setting_can_be_changed_at_any_time_and_off_it_sends_nothing(delayq_app, url, watching):
    app = delayq_app(url)
    with watching(app) as wait_for:
        for task_id, is_on in (("a", False), ("b", True), ("c", False), ("d", True)):
            app.conf.task_send_sent_event = is_on
            app.send_task("t", task_id=task_id, delayq_at=FAR)
        app.conf.update(task_send_sent_event=False)
        app.send_task("t", task_id="e", delayq_at=FAR)
        app.delayq.cancel("e")
        assert [event["uuid"] for event in wait_for(2)] == ["b", "d"]


# A broker that is away. The store is another Redis than the broker.


@pytest.fixture
def proxy(start_redis):
    with Proxy(start_redis().port) as one:
        yield one


@pytest.fixture
def behind(delayq_app, url, proxy):
    broker = f"redis://127.0.0.1:{proxy.port}/0"
    return delayq_app(broker, delayq_url=url, task_send_sent_event=True, broker_pool_limit=1)


@pytest.fixture
def connected(monkeypatch):
    """The connections to a broker that were opened, or tried, from here on."""
    made, ensure = [], Connection.ensure_connection

    def noted(self, *args, **options):
        made.append(self)
        return ensure(self, *args, **options)

    monkeypatch.setattr(Connection, "ensure_connection", noted)
    return made


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", ["refuse", "stall"])
def test_a_broker_that_is_away_fails_no_call_and_holds_up_one(  # noqa: PLR0917
    behind, proxy, fault, caplog, monkeypatch, connected
):
    getattr(proxy, fault)()
    began = clock.monotonic()

    behind.send_task("t", task_id="a", delayq_at=FAR)
    assert len(connected) == 1
    monkeypatch.setattr(clock, "monotonic", lambda: began + events.AGAIN - 0.001)
    for _ in range(20):
        behind.send_task("t", delayq_at=FAR)
    assert behind.delayq.cancel("a")

    assert len(connected) == 1
    [said] = [one.getMessage() for one in caplog.records if one.name == events.logger.name]
    where = f"the broker redis://127.0.0.1:{proxy.port}/0 of broker_url"
    assert said.startswith(f"sending no events to {where} for 5 s: ")


@pytest.mark.parametrize("fault", ["cut", "stall"])
def test_events_go_again_when_the_broker_is_back(behind, proxy, fault, impatient, monkeypatch):
    getattr(proxy, fault)()
    behind.send_task("t", task_id="a", delayq_at=FAR)
    proxy.resume()
    impatient()
    monkeypatch.setattr(clock, "monotonic", lambda: time.monotonic() + events.AGAIN)

    with Redis(port=proxy.target) as broker, broker.pubsub() as heard:
        heard.psubscribe("*celeryev*")
        heard.get_message(timeout=30)
        behind.send_task("t", task_id="b", delayq_at=FAR)
        assert heard.get_message(timeout=30)["type"] == "pmessage"


def test_a_process_keeps_its_connections_until_they_were_idle_for_too_long(
    behind, proxy, limits, connected
):
    for _ in range(5):
        thread = threading.Thread(
            target=lambda: behind.delayq.cancel(behind.send_task("t", delayq_at=FAR).id)
        )
        thread.start()
        thread.join(30)
    assert len(connected) == 2  # one for each kind of event
    assert proxy.accepted

    with Redis(port=proxy.target) as broker:
        before = len(broker.client_list())
        limits(events_idle_s=0.0)
        behind.send_task("t", delayq_at=FAR)
        assert len(connected) == 3
        # The proxy closes its own end of the old one a moment later.
        eventually(lambda: len(broker.client_list()) <= before, message="the old one is closed")


def test_a_child_process_has_a_connection_of_its_own(app, watching):
    with watching(app) as wait_for:
        app.send_task("t", task_id="a", delayq_at=FAR)
        child = multiprocessing.get_context("fork").Process(
            target=app.send_task, args=("t",), kwargs={"task_id": "b", "delayq_at": FAR}
        )
        child.start()
        child.join(30)
        app.send_task("t", task_id="c", delayq_at=FAR)
        seen = wait_for(3)

    assert [event["uuid"] for event in seen] == ["a", "b", "c"]
    assert seen[1]["pid"] == child.pid
