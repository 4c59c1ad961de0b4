"""How `Defer` changes the store, in a process that runs tasks as a worker does."""

import json
from datetime import datetime, timedelta, timezone

import celery.app.task
import pytest
from celery.exceptions import Ignore
from kombu.exceptions import OperationalError

from celery_delayq import Defer
from celery_delayq.errors import AlreadyScheduled
from tests.support.ports import free_port

pytestmark = pytest.mark.libraries

LATER = 3600


@pytest.fixture
def app(delayq_app, url):
    return delayq_app(url)


@pytest.fixture
def later(app):
    @app.task(name="later", shared=False, bind=True, ignore_result=True)
    def later(self, *_, **__):
        raise self.defer(after=LATER)

    return later


def run(task, task_id="a", tag="t1", **said):
    """Run a task for a message that a worker received."""
    headers = task.app.amqp.as_task_v2(task_id, task.name, (1,)).headers
    info = {"exchange": "", "routing_key": "mail", "priority": 3, "redelivered": False}
    given = {"args": (1,), "kwargs": {}, "properties": {"delivery_tag": tag}, "delivery_info": info}
    task.push_request(**{**headers, "called_directly": False, **given, **said})
    try:
        return task.run(1)
    finally:
        task.pop_request()


def test_its_next_run_goes_to_the_same_queue_with_the_same_priority(app, later, redis):
    with pytest.raises(Ignore):
        run(later)
    assert (app.delayq.get("a").queue, app.delayq.get("a").args) == ("mail", (1,))
    assert app.delayq.run_now("a")
    assert app.delayq.hand_over() == 1
    assert redis.llen("mail\x06\x163") == 1


def test_a_message_is_put_off_once_however_often_it_runs(app, later):
    with pytest.raises(Ignore):
        run(later)
    first = app.delayq.get("a")
    with pytest.raises(Ignore):
        run(later)
    assert app.delayq.get("a").revision == first.revision


def test_so_it_is_where_the_next_run_was_cancelled_in_between(app, later):
    with pytest.raises(Ignore):
        run(later)
    assert app.delayq.cancel("a")
    with pytest.raises(Ignore):
        run(later)
    assert app.delayq.get("a") is None


def test_another_message_under_its_id_is_put_off_by_itself(app, later):
    with pytest.raises(Ignore):
        run(later)
    assert app.delayq.cancel("a")
    with pytest.raises(Ignore):
        run(later, tag="t2")
    assert app.delayq.get("a")


def test_a_message_that_nothing_names_is_put_off_too(app, later):
    with pytest.raises(Ignore):
        run(later, properties={})
    assert app.delayq.get("a")


def test_a_task_cannot_be_put_off_while_another_with_its_id_waits(app, later):
    app.send_task("other", task_id="a", delayq_after=LATER)
    with pytest.raises(AlreadyScheduled):
        run(later)
    assert app.delayq.get("a").task == "other"


def test_a_task_raises_the_broker_s_error_if_the_broker_is_away_too(delayq_app):
    app = delayq_app(f"redis://127.0.0.1:{free_port()}/0", delayq_timeout=0.2)

    @app.task(name="later", shared=False)
    def later(_x):
        raise Defer(after=LATER)

    with pytest.raises(OperationalError):
        run(later)


def test_a_time_without_a_zone_is_one_of_the_app(app):
    app.conf.timezone = "Asia/Tokyo"

    @app.task(name="noon", shared=False)
    def noon(_x):
        raise Defer(at="2030-01-01T12:00:00")

    with pytest.raises(Ignore):
        run(noon)
    assert app.delayq.get("a").due.isoformat() == "2030-01-01T03:00:00+00:00"


def test_the_attributes_of_the_task_count_anew(app):
    @app.task(name="later", shared=False, delayq_tags=["own"])
    def later(_x):
        raise Defer(after=LATER)

    with pytest.raises(Ignore):
        run(later)
    assert app.delayq.get("a").tags == ("own",)


@pytest.mark.parametrize(
    ("before", "after"), [({}, 1), ({"delayq_put_offs": 4}, 5), ({"delayq_put_offs": "x"}, 1)]
)
def test_it_counts_its_put_offs_beside_the_caller_s_headers(app, later, redis, before, after):
    with pytest.raises(Ignore):
        run(later, headers={"tenant": 7, **before}, **before)

    assert app.delayq.get("a").put_offs == after
    assert app.delayq.reschedule("a", by=-LATER)
    assert app.delayq.run_now("a")
    app.delayq.hand_over()
    [message] = map(json.loads, redis.lrange("mail\x06\x163", 0, -1))
    assert message["headers"]["delayq_put_offs"] == after
    assert message["headers"]["tenant"] == 7


def updated(task):
    task.update_state(state="PROGRESS", meta={"done": 1})


def stored(task):
    task.backend.store_result(task.request.id, {"done": 1}, "PROGRESS")


@pytest.mark.parametrize("report", [updated, stored])
@pytest.mark.parametrize("said", [{}, {"ignore_result": False}], ids=["its own", "the call's"])
def test_a_state_that_the_task_stored_of_itself_is_taken_back(app_with_results, report, said):
    app = app_with_results
    if said and not hasattr(celery.app.task, "get_actual_ignore_result"):
        pytest.skip("in this Celery a call cannot ask for what its task ignores")

    @app.task(name="later", shared=False, bind=True, ignore_result=bool(said))
    def later(self, _x):
        report(self)
        raise self.defer(after=LATER)

    with pytest.raises(Ignore):
        run(later, **said)

    result = app.AsyncResult("a")
    assert (result.state, result.backend_state, result.info) == ("SCHEDULED", "PENDING", None)


def test_a_task_that_ignores_results_has_none_stored(app_with_results):
    @app_with_results.task(name="later", shared=False, ignore_result=True)
    def later(_x):
        raise Defer(after=LATER)

    with pytest.raises(Ignore):
        run(later, ignore_result=None)

    assert app_with_results.backend.client.keys("celery-task-meta-*") == []


@pytest.mark.parametrize(
    ("lease", "invisible", "seconds"), [(30, {}, 3600), (30, 7200, 7200), (3600, 10, 3600)]
)
def test_a_mark_outlives_what_may_bring_its_message_again(
    delayq_app, url, lease, invisible, seconds
):
    options = {"visibility_timeout": invisible} if invisible else {}
    app = delayq_app(url, delayq_lease=lease, broker_transport_options=options)

    made = app.delayq.services.copies.delivery(("a", "b"), again=True)

    assert (made.keep_ms, made.most) == ((3600 + seconds) * 1000, 1_000_000)
    app.conf.delayq_remember = (60, 10_000)
    made = app.delayq.services.copies.delivery(("a", "b"), again=True)
    assert (made.keep_ms, made.most) == ((60 + seconds) * 1000, 10_000)


@pytest.mark.parametrize(("hours", "warned"), [(2, False), (0.5, True)])
def test_past_its_own_expiry_it_is_put_off_with_a_warning(app, later, caplog, hours, warned):
    expires = (datetime.now(timezone.utc) + timedelta(hours=hours)).isoformat()

    with caplog.at_level("WARNING"), pytest.raises(Ignore):
        run(later, expires=expires)

    assert app.delayq.get("a")
    assert bool([one for one in caplog.messages if "expires at" in one]) is warned


def test_its_next_run_has_the_serializer_of_its_message(app, later, redis):
    app.conf.accept_content = ["json", "pickle"]
    with pytest.raises(Ignore):
        run(later, args=((1, 2),), delayq_serializer="pickle")

    assert app.delayq.run_now("a")
    app.delayq.hand_over()
    [message] = map(json.loads, redis.lrange("mail\x06\x163", 0, -1))
    assert message["content-type"] == "application/x-python-serialize"
    assert "delayq_serializer" not in message["headers"]
