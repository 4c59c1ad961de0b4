"""The meaning of a rule's text: against a walk over each minute, and Celery's own crontab."""

from datetime import datetime, timedelta, timezone
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo, available_timezones

import pytest
from celery import VERSION, Celery
from celery.schedules import crontab, crontab_parser, schedule

from celery_delayq.contrib.rules.plan import Timing, timing_of

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FIRST, LAST = (datetime(year, 1, 1, tzinfo=timezone.utc) for year in (2020, 2031))
BERLIN = "Europe/Berlin"
AUTUMN = datetime(2026, 10, 25, tzinfo=timezone.utc)  # at one o'clock, by UTC, three becomes two

# Texts, and whether they follow real time.
TEXTS = {
    "30 2 * * *": False,
    "0,59 0,1,2,3 * * *": False,
    "15 0-5 * * *": False,
    "*/30 * * * *": True,
    "7 * * * *": True,
    "*/10 1-3 * * *": True,
    "45 */2 * * *": True,
}


def changes_of(name):
    """The moments at which a zone's clock is changed, to the minute."""
    zone, found, at = ZoneInfo(name), [], FIRST
    while at < LAST:
        before, after = at, at + 7 * DAY
        if at.astimezone(zone).utcoffset() != after.astimezone(zone).utcoffset():
            while after - before > MINUTE:
                middle = before + (after - before) // 2
                is_same = middle.astimezone(zone).utcoffset() == at.astimezone(zone).utcoffset()
                before, after = (middle, after) if is_same else (before, middle)
            found.append((after + MINUTE / 2).replace(second=0, microsecond=0))
        at += 7 * DAY
    return found


def all_changes(*, kinds):
    """Each change of a clock once; or with *kinds* one of each: by its wall time, and how far."""
    found = {}
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        for moment in changes_of(name):
            walls = [(moment + by).astimezone(zone) for by in (-HOUR, HOUR)]
            offsets = [wall.utcoffset() for wall in walls]
            kind = (walls[0].time(), offsets[1] - offsets[0])
            found.setdefault(kind if kinds else (moment, *offsets), (name, moment))
    return [*found.values()]


def walked(text, zone, begin, end):
    """The moments at which a text fires, by a walk over each minute from a day before."""
    moment, seen, found = begin - DAY, set(), []
    last = moment.astimezone(zone).replace(tzinfo=None) - MINUTE
    is_wild = TEXTS[text]
    minutes, hours, *_ = text.split()
    minutes, hours = crontab_parser(60).parse(minutes), crontab_parser(24).parse(hours)
    while moment <= end:
        wall = moment.astimezone(zone).replace(tzinfo=None)
        skipped = []
        if not is_wild:
            while last + MINUTE < wall:  # a gap
                last += MINUTE
                skipped.append(last)
        is_new = is_wild or wall not in seen
        met = [one for one in (*skipped, *([wall] if is_new else [])) if one not in seen or is_wild]
        if any(one.minute in minutes and one.hour in hours for one in met) and moment > begin:
            found.append(moment)
        if not is_wild:
            seen.update((wall, *skipped))
        last = wall
        moment += MINUTE
    return found


def fired_in(timing, begin, end):
    return [*takewhile(lambda moment: moment <= end, timing.after(begin))]


def check_changes(text, changes):
    for name, moment in changes:
        begin, end = moment - 4 * HOUR, moment + 4 * HOUR
        expected = walked(text, ZoneInfo(name), begin, end)
        assert fired_in(Timing(text, name), begin, end) == expected, f"{name} at {moment}"


@pytest.mark.parametrize("text", TEXTS)
def test_around_each_kind_of_clock_change_a_text_fires_as_a_walk_over_its_minutes_does(text):
    check_changes(text, all_changes(kinds=True))


@pytest.mark.thorough
@pytest.mark.parametrize("text", TEXTS)
def test_around_each_clock_change_of_each_zone_a_text_fires_as_a_walk_over_its_minutes_does(text):
    check_changes(text, all_changes(kinds=False))


# Celery's crontab, while no clock is changed.


class Clock:
    """The time of a Celery app."""

    def __init__(self, moment):
        self.moment = moment

    def __call__(self):
        return self.moment


CRONTABS = [
    {"minute": "*/7"},
    {"minute": 0, "hour": "*/5"},
    {"minute": "5,35", "hour": "8-17", "day_of_week": "mon-fri"},
    {"minute": 0, "hour": 0, "day_of_month": "1,15,31"},
    {"minute": 30, "hour": 6, "day_of_month": "1-7", "day_of_week": "sun"},
    {"minute": 0, "hour": 12, "day_of_month": "*/3", "month_of_year": "2,3"},
    {"minute": 0, "hour": 12, "day_of_month": 29, "month_of_year": 2},
    {"minute": "59", "hour": "23", "day_of_week": "6,0"},
    {"minute": 0, "hour": 3, "day_of_month": "13", "day_of_week": "friday"},
]


@pytest.mark.parametrize("fields", CRONTABS, ids=str)
def test_a_crontab_fires_when_celery_s_does(fields):
    moment = datetime(2026, 1, 30, 11, 3, 20, tzinfo=timezone.utc)
    clock = Clock(moment)
    its = crontab(**fields, nowfun=clock)
    timing, expected = timing_of(crontab(**fields)), []
    for _ in range(12):
        wait = its.remaining_delta(clock.moment)
        clock.moment = wait[0] + wait[1]
        expected.append(clock.moment.replace(second=0, microsecond=0))

    assert [*islice(timing.after(moment), 12)] == expected


# Celery's differs when clocks are changed: the table of the guide.

NIGHTS = {
    "spring": datetime(2026, 3, 28, 21, tzinfo=timezone.utc),
    "autumn": datetime(2026, 10, 24, 21, tzinfo=timezone.utc),
}


def beats(text, night):
    """The times at which beat sends a task in a night; it looks each minute."""
    minute, hour, *_ = text.split()
    clock, found = Clock(night), []
    app = Celery(set_as_current=False, timezone=BERLIN)
    its = crontab(minute, hour, app=app, nowfun=clock)
    last = night
    for minutes in range(390):
        clock.moment = (night + minutes * MINUTE).astimezone(ZoneInfo(BERLIN))
        if its.is_due(last.astimezone(ZoneInfo(BERLIN))).is_due:
            last = clock.moment
            found.append(last)
    return [f"{moment:%H:%M}" for moment in found]


@pytest.mark.parametrize(
    ("text", "night", "celery", "rules"),
    [
        pytest.param(
            *("30 2 * * *", "spring", "03:30", "03:00"),
            marks=pytest.mark.skipif(VERSION < (5, 7), reason="Celery 5.4 does as rules do"),
        ),
        ("0 */2 * * *", "spring", "00:00 03:00 04:00", "00:00 04:00"),
        (
            "*/30 2-3 * * *",
            "autumn",
            "02:00 02:30 03:00 03:30",
            "02:00 02:30 02:00 02:30 03:00 03:30",
        ),
        ("0 */2 * * *", "autumn", "00:00 02:00 04:00", "00:00 02:00 02:00 04:00"),
    ],
)
def test_in_these_nights_celery_s_crontab_differs(text, night, celery, rules):
    begin = NIGHTS[night]
    timing = timing_of(text, tz=BERLIN)
    own = takewhile(lambda slot: slot < begin + 390 * MINUTE, timing.after(begin))
    assert beats(text, begin) == celery.split()
    assert [f"{slot.astimezone(ZoneInfo(BERLIN)):%H:%M}" for slot in own] == rules.split()


# One by one.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # At 00:00 and 00:30 UTC it is two and half past two, and an hour later once more.
        ("30 2 * * *", ["25 00:30", "26 01:30"]),
        ("0 3 * * *", ["25 02:00", "26 02:00"]),
        ("*/30 * * * *", ["25 00:30", "25 01:00", "25 01:30", "25 02:00"]),
    ],
)
def test_in_the_autumn_a_fixed_time_fires_once_and_no_run_of_a_wild_one_is_dropped(text, expected):
    fired = islice(Timing(text, BERLIN).after(AUTUMN), len(expected))
    assert [f"{one:%d %H:%M}" for one in fired] == expected


def test_in_the_spring_a_time_that_is_skipped_fires_once_after_the_gap():
    fired = Timing("0,30 2 * * *", BERLIN).after(datetime(2026, 3, 28, 12, tzinfo=timezone.utc))
    assert [f"{one:%d %H:%M}" for one in islice(fired, 3)] == ["29 01:00", "30 00:00", "30 00:30"]


@pytest.mark.parametrize("given", [10, 10.0, timedelta(seconds=10), schedule(10), "every 10 s"])
def test_an_interval_counts_since_1970_so_that_no_deploy_moves_it(given):
    timing = timing_of(given, tz=BERLIN)
    assert timing == Timing("every 10 s", BERLIN)
    for second in (0, 3, 9.5):
        moment = AUTUMN + timedelta(seconds=second)
        assert timing.next(moment) == AUTUMN + timedelta(seconds=10)


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "Asia/Kolkata"])
@pytest.mark.parametrize("unit", ["days", "hours", "minutes"])
def test_an_interval_that_celery_rounds_fires_when_celery_says(unit, zone):
    """In Tokyo a day begins at 15:00 UTC."""
    app = Celery(set_as_current=False)
    app.conf.timezone = zone
    its = schedule(timedelta(**{unit: 1}), relative=True, app=app)
    moment = AUTUMN.astimezone(ZoneInfo(zone))
    expected = []
    for _ in range(3):
        now = moment
        its.nowfun = lambda now=now: now
        moment += its.remaining_estimate(moment)
        expected.append(moment)
    its.nowfun = None
    assert [*islice(timing_of(its, default_zone=zone).after(AUTUMN), 3)] == expected


def test_a_fraction_of_a_second_stays_exact():
    timing = timing_of(1.1)
    assert timing.text == "every 1.1 s"
    fired = [*islice(timing.after(AUTUMN), 1000)]
    assert {after - before for before, after in pairwise(fired)} == {timedelta(seconds=1.1)}


@pytest.mark.parametrize(
    ("dialect", "days"), [("cron", "02 06 09 13 20 27"), ("celery", "06 13 20")]
)
def test_of_both_days_a_dialect_says_what_is_meant(dialect, days):
    """In February 2026, Fridays are the 6th, the 13th, the 20th and the 27th."""
    text = "0 0 2,9 * 5" if dialect == "cron" else "0 0 6,9,13,20 * 5"
    timing = timing_of(text, dialect=dialect)
    begin, end = (datetime(2026, *day, tzinfo=timezone.utc) for day in ((1, 31, 12), (2, 28)))
    assert " ".join(f"{moment:%d}" for moment in fired_in(timing, begin, end)) == days


def test_the_zone_is_the_app_s_unless_the_rule_has_one():
    assert timing_of("0 9 * * *", default_zone=BERLIN).zone == BERLIN
    assert timing_of("0 9 * * *", tz="Asia/Tokyo", default_zone=BERLIN).zone == "Asia/Tokyo"
