"""The times that a call may pass, and the resulting due time of the entry."""

import math
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from celery_delayq import InvalidDueTime
from celery_delayq.errors import NotADueTime
from tests.app.support import FAR, LONG_AGO, lists, redis_ms, to_ms

pytestmark = [pytest.mark.core, pytest.mark.libraries]

UTC = timezone.utc
A_MILLISECOND = timedelta(milliseconds=1)
WHEN = datetime(2031, 5, 6, 7, 8, 9, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    "when",
    [WHEN.astimezone(ZoneInfo("Asia/Kathmandu")), WHEN.isoformat()],
    ids=lambda when: type(when).__name__,
)
def test_each_way_to_say_a_time_gives_the_same_due_time(add, delayq, when):
    result = add.delay_until(when, 1)

    assert result.due == WHEN
    assert delayq.get(result.id).due == WHEN


@pytest.mark.parametrize("delay", [90, timedelta(seconds=90)])
def test_a_relative_delay_counts_from_the_call_by_redis_s_clock(add, redis, delay):
    before = redis_ms(redis)
    result = add.delay_for(delay, 1)
    after = redis_ms(redis)

    assert before + 90_000 <= to_ms(result.due) <= after + 90_001


def test_an_absolute_time_and_the_equal_delay_give_the_same_entry(add, delayq, redis):
    now = redis_ms(redis) / 1000
    absolute, relative = add.delay_until(now + 600, 1), add.delay_for(600, 1)

    one, other = delayq.get(absolute.id), delayq.get(relative.id)
    assert one.due.timestamp() == pytest.approx(now + 600, abs=0.001)
    assert timedelta(0) <= other.due - other.created - timedelta(minutes=10) <= A_MILLISECOND
    assert (one.task, one.args, one.queue) == (other.task, other.args, other.queue)


@pytest.mark.parametrize("when", [0, LONG_AGO])
def test_a_time_in_the_past_goes_to_the_queue_at_once(add, delayq, redis, when):
    result = add.delay_until(when, 1)
    assert delayq.get(result.id) is not None

    assert delayq.hand_over() == 1

    assert sum(map(len, lists(redis).values())) == 1


@pytest.mark.parametrize("delay", [0, -3])
def test_no_delay_or_less_is_due_at_the_call(add, redis, delay):
    before = math.floor(redis_ms(redis))
    result = add.delay_for(delay, 1)

    assert before <= to_ms(result.due) <= redis_ms(redis)


def test_a_due_task_can_be_cancelled_until_it_is_delivered(add, redis, delayq):
    result = add.delay_until(0, 1)

    assert result.cancel()

    assert delayq.hand_over() == 0
    assert lists(redis) == {}


def test_a_century_ahead_is_accepted(add, delayq):
    result = add.delay_for(timedelta(days=36_500), 1)

    assert delayq.get(result.id).due == result.due
    assert result.due > datetime.now(UTC) + timedelta(days=36_500, minutes=-1)


def test_a_due_time_is_rounded_up_to_the_millisecond(add):
    assert to_ms(add.delay_until(FAR + 0.0001, 1).due) == FAR * 1000 + 1


# tests/unit/test_clock.py tries many more; here, one of each kind of error.
@pytest.mark.parametrize(
    ("method", "value", "error"),
    [
        ("delay_until", "tomorrow", InvalidDueTime),
        ("delay_until", None, NotADueTime),
        ("delay_for", 1e12, InvalidDueTime),
        ("delay_for", None, NotADueTime),
    ],
)
def test_a_value_that_is_not_a_time_is_refused_and_named(add, redis, method, value, error):
    with pytest.raises(error) as caught:
        getattr(add, method)(value, 1)

    assert str(caught.value).startswith(f"{value!r} is not a due time; expected a")
    assert not redis.exists("{delayq:0}:records", "{delayq:0}:due", "{delayq:0}:templates")


BERLIN = ZoneInfo("Europe/Berlin")


def wall(text, fold=0):
    return datetime.fromisoformat(text).replace(fold=fold)


def test_a_naive_time_is_wall_time_in_the_app_s_zone_as_zoneinfo_has_it(delayq_app, url):
    app = delayq_app(url, timezone="Europe/Berlin")
    ambiguous = wall("2030-10-27T02:30", fold=1)
    expected = ambiguous.replace(tzinfo=BERLIN).astimezone(UTC)

    for when in (ambiguous, ambiguous.replace(tzinfo=BERLIN)):
        assert app.delayq.get(app.send_task("t", delayq_at=when).id).due == expected


def test_naive_text_is_wall_time_in_the_app_s_zone(delayq_app, url):
    app = delayq_app(url, timezone="Europe/Berlin")

    result = app.send_task("t", delayq_at="2030-07-01T12:00")

    assert app.delayq.get(result.id).due == datetime(2030, 7, 1, 10, tzinfo=UTC)


def test_a_relative_delay_over_a_change_of_clocks_is_so_many_seconds(delayq_app, url, redis):
    app = delayq_app(url, timezone="Europe/Berlin")
    before = redis_ms(redis)

    result = app.send_task("t", delayq_after=timedelta(days=365))

    assert 0 <= to_ms(app.delayq.get(result.id).due) - before - 365 * 86_400_000 < 60_000


def test_the_zone_is_the_app_s_even_when_utc_is_off(delayq_app, url):
    app = delayq_app(url, timezone="Asia/Tokyo", enable_utc=False)

    result = app.send_task("t", delayq_at=wall("2030-07-01T09:00"))

    assert app.delayq.get(result.id).due == datetime(2030, 7, 1, tzinfo=UTC)
