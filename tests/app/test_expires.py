"""`expires`: relative, it counts from the due time; absolute, it is kept."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from dateutil.parser import isoparse
from kombu import Exchange, Queue

from tests.app.support import FAR, envelope
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.core, pytest.mark.libraries]

DUE = datetime.fromtimestamp(FAR, timezone.utc)
EXPIRES = datetime(2101, 1, 1, tzinfo=timezone.utc)
LOOSE = timedelta(seconds=PATIENCE)


def close(expires, to):
    return abs(isoparse(expires) - to) < LOOSE


DOORS = {
    "signature": lambda task, **options: task.s(1).set(**options).delay_until(DUE),
    "schedule": lambda task, **options: task.app.delayq.schedule(task.s(1).set(**options), at=DUE),
    "apply_async": lambda task, **options: task.apply_async((1,), delayq_at=DUE, **options),
    "send_task": lambda task, **options: task.app.send_task(
        task.name, (1,), delayq_at=DUE, **options
    ),
}


def expiry(delayq, result):
    return envelope(delayq, getattr(result, "id", result)).headers["expires"]


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_relative_expiry_counts_from_the_due_time(add, delayq, door):
    assert close(expiry(delayq, door(add, expires=60)), DUE + timedelta(seconds=60))


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize("expires", [EXPIRES, EXPIRES.isoformat()], ids=["datetime", "text"])
def test_an_absolute_expiry_is_kept(add, delayq, door, expires):
    assert isoparse(expiry(delayq, door(add, expires=expires))) == EXPIRES


@pytest.mark.parametrize("expires", [0, 0.5, 10**6, -1, -0.5, -86_400])
def test_a_relative_expiry_may_be_of_any_size_and_before_the_due_time(add, delayq, redis, expires):
    add.s(1).set(expires=expires, task_id="a").delay_until(DUE)
    add.delay_until(0, 2)
    assert close(expiry(delayq, "a"), DUE + timedelta(seconds=expires))
    delayq.reschedule("a", 0)
    assert delayq.hand_over() == 2


def test_an_expiry_before_the_due_time_is_kept_and_the_task_is_scheduled_all_the_same(add, delayq):
    result = add.s(1).set(expires=DUE - timedelta(days=1)).delay_until(DUE)
    assert isoparse(expiry(delayq, result)) == DUE - timedelta(days=1)
    assert result.state == "SCHEDULED"


@pytest.mark.parametrize("delay", [3600, timedelta(hours=1)])
def test_a_relative_expiry_counts_from_a_relative_due_time(add, delayq, delay):
    result = add.s(1).set(expires=60).delay_for(delay)
    assert close(expiry(delayq, result), result.due + timedelta(seconds=60))


def test_a_task_s_own_expiry_counts_from_the_due_time(app, delayq):
    @app.task(name="t", expires=60)
    def task(x):
        return x

    for result in (task.delay_until(DUE, 1), task.s(1).delay_until(DUE)):
        assert close(expiry(delayq, result), DUE + timedelta(seconds=60))


def test_a_captured_countdown_expires_after_it_is_due(app, add, delayq):
    app.conf.delayq_capture_eta = True
    result = add.apply_async((1,), countdown=3600, expires=60)
    assert close(expiry(delayq, result), delayq.get(result.id).due + timedelta(seconds=60))


@pytest.mark.parametrize("is_naive", [False, True], ids=["as Celery has it", "naive"])
def test_the_broker_s_time_to_live_counts_from_the_hand_over(delayq_app, url, redis, is_naive):
    topic = Queue("q", Exchange("x", type="topic"), routing_key="#")
    app = delayq_app(url, task_queues=[topic], timezone="Asia/Tokyo")
    soon = datetime.now(timezone.utc) + timedelta(seconds=90)
    # As an adopted message may have it, or a program's own headers.
    headers = {"expires": soon.replace(tzinfo=None).isoformat()} if is_naive else {}
    app.send_task("t", queue=topic, delayq_at=0, expires=soon, headers=headers)

    app.delayq.hand_over()

    [raw] = redis.lrange("q", 0, -1)
    # In milliseconds, as text: AMQP requires this.
    assert 60_000 < float(json.loads(raw)["properties"]["expiration"]) <= 90_000


@pytest.mark.parametrize("later", [86_400, -3600, 31_536_000])
@pytest.mark.parametrize("text", ["", "long " * 2000], ids=["short", "long"])
def test_a_relative_expiry_moves_with_the_due_time(add, delayq, later, text):
    result = add.s(text).set(expires=60).delay_until(DUE)
    result.reschedule(by=later)
    assert close(expiry(delayq, result), DUE + timedelta(seconds=later + 60))


def test_a_task_without_expiry_gets_none(add, delayq):
    result = add.delay_until(DUE, 1)
    held = envelope(delayq, result.id)
    assert held.headers["expires"] is None
    assert "expiration" not in json.dumps(held.properties)


@pytest.mark.parametrize("text", ["", "long " * 2000], ids=["short", "long"])
def test_an_expiry_in_thousands_of_years_stays_a_date_that_a_worker_can_read(
    add, delayq, redis, text
):
    add.s(text).set(expires=86_400 * 365 * 7950, task_id="a").delay_until(DUE)
    seen = [expiry(delayq, "a")]
    delayq.reschedule("a", "2255-01-01")
    seen.append(expiry(delayq, "a"))
    delayq.reschedule("a", 0)
    delayq.hand_over()
    seen.append(json.loads(redis.lrange("celery", 0, -1)[0])["headers"]["expires"])

    for one in seen:
        for hours in (-12, 14):
            assert isoparse(one).astimezone(timezone(timedelta(hours=hours))).year > 9900
    assert seen[1] == "9999-12-31T00:00:00.000000+00:00"
