"""`expires`: relative, it counts from the due time; absolute, it is kept."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from dateutil.parser import isoparse
from kombu import Exchange, Queue

from tests.app.support import FAR, envelope

pytestmark = [pytest.mark.core, pytest.mark.libraries]

DUE = datetime.fromtimestamp(FAR, timezone.utc)
EXPIRES = datetime(2101, 1, 1, tzinfo=timezone.utc)
LOOSE = timedelta(seconds=5)


def close(expires, to):
    return abs(isoparse(expires) - to) < LOOSE


def through_signature(task, **options):
    return task.s(1).set(**options).delay_until(DUE)


def through_schedule(task, **options):
    return task.app.delayq.schedule(task.s(1).set(**options), at=DUE)


def through_apply_async(task, **options):
    return task.apply_async((1,), delayq_at=DUE, **options)


def through_send_task(task, **options):
    return task.app.send_task(task.name, (1,), delayq_at=DUE, **options)


DOORS = [through_signature, through_schedule, through_apply_async, through_send_task]


@pytest.mark.parametrize("door", DOORS)
def test_a_relative_expiry_counts_from_the_due_time(add, delayq, door):
    result = door(add, expires=60)

    assert close(envelope(delayq, result.id).headers["expires"], DUE + timedelta(seconds=60))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("expires", [EXPIRES, EXPIRES.isoformat()], ids=["datetime", "text"])
def test_an_absolute_expiry_is_kept(add, delayq, door, expires):
    result = door(add, expires=expires)

    assert isoparse(envelope(delayq, result.id).headers["expires"]) == EXPIRES


@pytest.mark.parametrize("delay", [3600, timedelta(hours=1)])
def test_a_relative_expiry_counts_from_a_relative_due_time(add, delayq, delay):
    result = add.s(1).set(expires=60).delay_for(delay)

    expires = envelope(delayq, result.id).headers["expires"]
    assert close(expires, result.due + timedelta(seconds=60))


def test_a_task_s_own_expiry_counts_from_the_due_time(app, delayq):
    @app.task(name="t", expires=60)
    def task(x):
        return x

    for result in (task.delay_until(DUE, 1), task.s(1).delay_until(DUE)):
        expires = envelope(delayq, result.id).headers["expires"]
        assert close(expires, DUE + timedelta(seconds=60))


def test_a_captured_countdown_expires_after_it_is_due(delayq_app, url):
    app = delayq_app(url, delayq_capture_eta=True)

    @app.task(name="t")
    def task(x):
        return x

    result = task.apply_async((1,), countdown=3600, expires=60)

    due = app.delayq.get(result.id).due
    assert close(envelope(app.delayq, result.id).headers["expires"], due + timedelta(seconds=60))


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


def test_an_expiry_before_the_due_time_is_kept_and_the_task_is_scheduled_all_the_same(add, delayq):
    result = add.s(1).set(expires=DUE - timedelta(days=1)).delay_until(DUE)

    expires = envelope(delayq, result.id).headers["expires"]
    assert isoparse(expires) == DUE - timedelta(days=1)
    assert result.state == "SCHEDULED"


@pytest.mark.parametrize("later", [86_400, -3600, 31_536_000])
@pytest.mark.parametrize("text", ["", "long " * 2000], ids=["short", "long"])
def test_a_relative_expiry_moves_with_the_due_time(add, delayq, later, text):
    result = add.s(text).set(expires=60).delay_until(DUE)

    result.reschedule(by=later)

    expires = envelope(delayq, result.id).headers["expires"]
    assert close(expires, DUE + timedelta(seconds=later + 60))


def test_an_absolute_expiry_does_not_move_with_the_due_time(add, delayq):
    result = add.s(1).set(expires=EXPIRES).delay_until(DUE)

    result.reschedule(by=3600)

    assert isoparse(envelope(delayq, result.id).headers["expires"]) == EXPIRES


@pytest.mark.parametrize("expires", [-1, -0.5, -86_400])
def test_an_expiry_before_the_due_time_may_be_relative(add, delayq, redis, expires):
    add.s(1).set(expires=expires, task_id="a").delay_until(DUE)
    add.delay_until(0, 2)

    seen = envelope(delayq, "a").headers["expires"]
    delayq.reschedule("a", 0)

    assert close(seen, DUE + timedelta(seconds=expires))
    assert delayq.hand_over() == 2


@pytest.mark.parametrize("expires", [0, 0.5, 10**6])
def test_a_relative_expiry_of_any_size_is_one(add, delayq, expires):
    result = add.s(1).set(expires=expires).delay_until(DUE)

    seen = envelope(delayq, result.id).headers["expires"]
    assert close(seen, DUE + timedelta(seconds=expires))


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
    seen = [envelope(delayq, "a").headers["expires"]]
    delayq.reschedule("a", "2255-01-01")
    seen.append(envelope(delayq, "a").headers["expires"])
    delayq.reschedule("a", 0)
    delayq.hand_over()
    seen.append(json.loads(redis.lrange("celery", 0, -1)[0])["headers"]["expires"])

    for one in seen:
        for hours in (-12, 14):
            assert isoparse(one).astimezone(timezone(timedelta(hours=hours))).year > 9900
    assert seen[1] == "9999-12-31T00:00:00.000000+00:00"
