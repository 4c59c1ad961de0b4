"""The times that a call may pass, and the resulting due time of the entry."""

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from tests.app.support import redis_ms, to_ms

pytestmark = [pytest.mark.core, pytest.mark.libraries]

UTC = timezone.utc
A_MILLISECOND = timedelta(milliseconds=1)


@pytest.mark.parametrize("delay", [90, timedelta(seconds=90), timedelta(days=36_500)])
def test_a_relative_delay_counts_from_the_call_by_redis_s_clock(add, redis, delay):
    before = redis_ms(redis)
    result = add.delay_for(delay, 1)
    after = redis_ms(redis)

    delay_ms = 90_000 if delay == 90 else delay / A_MILLISECOND
    assert before + delay_ms <= to_ms(result.due) <= after + delay_ms + 1


# tests/unit/test_clock.py tries many more; here, one of each kind of error.
BERLIN = ZoneInfo("Europe/Berlin")


def wall(text, fold=0):
    return datetime.fromisoformat(text).replace(fold=fold)


@pytest.mark.parametrize("enable_utc", [True, False])
def test_a_naive_time_is_wall_time_in_the_app_s_zone_as_zoneinfo_has_it(
    delayq_app, url, enable_utc
):
    app = delayq_app(url, timezone="Europe/Berlin", enable_utc=enable_utc)
    ambiguous = wall("2030-10-27T02:30", fold=1)
    summer = datetime(2030, 7, 1, 10, tzinfo=UTC)

    for when, expected in (
        (ambiguous, ambiguous.replace(tzinfo=BERLIN).astimezone(UTC)),
        (ambiguous.replace(tzinfo=BERLIN), ambiguous.replace(tzinfo=BERLIN).astimezone(UTC)),
        ("2030-07-01T12:00", summer),
        (wall("2030-07-01T12:00"), summer),
    ):
        assert app.delayq.get(app.send_task("t", delayq_at=when).id).due == expected
