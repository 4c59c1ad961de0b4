"""The guide's table of who reads a naive time, and in which zone: each row is tried in Tokyo."""

import re
from datetime import datetime
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from celery.exceptions import Retry
from dateutil.parser import isoparse
from werkzeug.test import Client

from celery_delayq import Defer, InvalidDueTime
from celery_delayq.contrib.adoption.messages import far_of
from celery_delayq.contrib.web import wsgi
from celery_delayq.core.clock import from_ms
from tests.app.support import FAR, envelope
from tests.cli.conftest import delayq_app, project, redis, redis_client, run, url
from tests.readme.document import page

__all__ = ["delayq_app", "project", "redis", "redis_client", "run", "url"]

pytestmark = pytest.mark.libraries

NOON = "2100-01-01T12:00"
YEAR = "1530"  # to Celery; probably a time of day to the one who wrote it
IN_TOKYO = FAR + 3 * 3600
ZONES = {
    "the app's time zone": "Asia/Tokyo",
    "the app's time zone, or that of `--utc` or `--local`": "Asia/Tokyo",
    "the browser's time zone": "Europe/Berlin",
}


@pytest.fixture
def app(delayq_app, url):
    app = delayq_app(url, timezone="Asia/Tokyo", delayq_capture_eta=True)

    @app.task(name="t", bind=True)
    def task(self):
        pass

    return app


@pytest.fixture
def doors(app, run):
    """How each door reads a time; they change a task with the id ``a``, due at Tokyo's noon."""
    delayq, task, services = app.delayq, app.tasks["t"], app.delayq.services

    def due(task_id="a"):
        found = delayq.get(task_id)
        return found.due if found else "sent at once"

    def expiry(task_id="a"):
        return isoparse(envelope(delayq, task_id).headers["expires"])

    def many(item, **times):
        bulk = delayq.schedule_many(task.s(), [item], **times)
        for error in bulk.refused.values():
            raise error
        return due(bulk.ids[0])

    def found(value):
        is_later, is_earlier = delayq.tasks(after_due=value), delayq.tasks(before_due=value)
        return due() if len(list(is_later)) == 1 and not list(is_earlier) else "another time"

    def edited(value):
        delayq.edit("a", expires=value)
        return expiry()

    def retried(value):
        task.push_request(id="r", args=(), kwargs={}, retries=0, called_directly=False)
        with pytest.raises(Retry):
            task.retry(eta=value)
        task.pop_request()
        return due("r")

    def adopted(value):
        eta = value if isinstance(value, str) else value.isoformat()
        message = SimpleNamespace(
            headers={"task": "t", "id": "b", "eta": eta}, properties={"correlation_id": "b"},
            body=b"", accept=None, delivery_info={},
        )  # fmt: skip
        return from_ms(far_of(services, message, None, "q", 60).when.ms)

    def typed(value):
        result = run("reschedule", "a", str(value), app=app)
        if result.exit_code:
            raise InvalidDueTime(value, result.output)
        return due()

    def sent(value):
        form = {"action": "reschedule", "value": str(value), "zone": "Europe/Berlin"}
        headers = {"Sec-Fetch-Site": "same-origin"}
        answer = Client(wsgi(delayq, allow=lambda _: "write")).post(
            "/task?id=a", data=form, headers=headers
        )
        if "status=200" not in answer.location:
            raise InvalidDueTime(value, answer.location)
        return due()

    return {
        "`delay_until`": lambda value: task.delay_until(value).due,
        "`delayq_at=`": lambda value: due(app.send_task("t", delayq_at=value).id),
        "`at=`": lambda value: delayq.schedule(task.s(), at=value).due,
        "`spread=`": lambda value: many(((), {}), spread=(value, value)),
        "`Item`": lambda value: many(((), {}, value)),
        "`Defer`": lambda value: from_ms(Defer(at=value).when(services.timezone).ms),
        "`if_due=`": lambda value: (
            delayq.reschedule("a", by=60, if_due=value) and from_ms(IN_TOKYO * 1000)
        ),
        "`after_due=`": found,
        "`before_due=`": found,
        "`edit`": edited,
        "the command line": typed,
        "the page": sent,
        "`eta=`": lambda value: due(app.send_task("t", eta=value).id),
        "`expires=`": lambda value: expiry(app.send_task("t", delayq_after=9, expires=value).id),
        "`retry`": retried,
        "a worker that adopts a message": adopted,
    }


ROWS = [
    (name, zone, text)
    for place, zone, text in page("guide/times").rows("Times without a zone")
    for name in (re.findall(r"`[^`]+`", place) or [place])
]


@pytest.mark.parametrize("value", [NOON, datetime.fromisoformat(NOON)], ids=["text", "datetime"])
def test_a_naive_time_is_in_the_zone_that_the_table_says(app, doors, value):
    assert [name for name, *_ in ROWS] == list(doors)

    for name, zone, _ in ROWS:
        app.send_task("t", task_id="a", delayq_at=IN_TOKYO)
        expected = datetime.fromisoformat(NOON).replace(tzinfo=ZoneInfo(ZONES.get(zone, zone)))
        assert (name, doors[name](value)) == (name, expected)
        app.delayq.select(all=True).cancel()


def test_text_without_a_date_is_refused_where_the_table_says_so(app, doors):
    app.send_task("t", task_id="a", delayq_at=IN_TOKYO)

    refused = [name for name, *_ in ROWS if is_refused(doors[name])]

    assert refused == [name for name, _, text in ROWS if text != "is read by Celery"]
    assert {text for *_, text in ROWS} == {
        "begins with a date", "as people type it", "is read by Celery",
    }  # fmt: skip
    assert app.delayq.get("a").due.timestamp() == IN_TOKYO


def is_refused(door):
    try:
        door(YEAR)
    except InvalidDueTime:
        return True
    return False
