"""`expires`: relative, it counts from the due time; absolute, it is kept."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from dateutil.parser import isoparse
from kombu import Exchange, Queue

from tests.app.support import FAR, WAYS, envelope
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.core, pytest.mark.libraries]

DUE = datetime.fromtimestamp(FAR, timezone.utc)
EXPIRES = datetime(2101, 1, 1, tzinfo=timezone.utc)
LOOSE = timedelta(seconds=PATIENCE)


def close(expires, to):
    return abs(isoparse(expires) - to) < LOOSE


def expiry(delayq, result):
    return envelope(delayq, getattr(result, "id", result)).headers["expires"]


@pytest.mark.parametrize("way", WAYS)
def test_a_relative_expiry_counts_from_the_due_time_and_an_absolute_one_is_kept(add, delayq, way):
    assert close(expiry(delayq, WAYS[way](add, 1, expires=60)), DUE + timedelta(seconds=60))
    for expires in (EXPIRES, EXPIRES.isoformat()):
        assert isoparse(expiry(delayq, WAYS[way](add, 1, expires=expires))) == EXPIRES


@pytest.mark.parametrize("expires", [0, 0.5, 10**6, -1, -0.5, -86_400])
def test_a_relative_expiry_may_be_of_any_size_and_before_the_due_time(add, delayq, redis, expires):
    add.s(1).set(expires=expires, task_id="a").delay_until(DUE)
    add.delay_until(0, 2)
    assert close(expiry(delayq, "a"), DUE + timedelta(seconds=expires))
    delayq.reschedule("a", 0)
    assert delayq.hand_over() == 2


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


def test_an_expiry_in_thousands_of_years_stays_a_date_that_a_worker_can_read(add, delayq):
    add.s(1).set(expires=86_400 * 365 * 7950, task_id="a").delay_until(DUE)

    for hours in (-12, 14):
        zone = timezone(timedelta(hours=hours))
        assert isoparse(expiry(delayq, "a")).astimezone(zone).year > 9900
