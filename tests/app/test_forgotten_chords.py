"""A part of a chord that waits longer than the result backend keeps the chord is warned of."""

import logging
import re
from datetime import timedelta

import pytest
from celery import chain, chord, group
from celery.app.defaults import DEFAULTS
from celery.app.trace import build_tracer
from celery.backends.base import BaseBackend
from celery.utils.time import maybe_timedelta

from tests.app.conftest import app_with_results as app
from tests.app.support import FAR, noop

__all__ = ["app"]

pytestmark = pytest.mark.libraries

DAY = 86400
OF_CHORDS = "result_chord_expires" if "result_chord_expires" in DEFAULTS else "result_expires"
WARNING = re.compile(
    r"task \S+: waits for (\d+) s, but the result backend keeps its chord for (\d+) s, so the "
    r"chord's body may never run; set (\w+) to at least (\d+), plus the time that the task runs"
)


class Database(BaseBackend):
    """Looks at the results of a chord's parts, and keeps a timedelta, as Celery's for databases."""

    def __init__(self, **options):
        super().__init__(expires_type=maybe_timedelta, **options)


@pytest.fixture
def told(caplog):
    """The warnings: each has the wait, the time that the backend keeps, a setting and its value."""

    def told():
        lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        found = [WARNING.fullmatch(line) for line in lines]
        assert all(found), lines
        return [(int(one[1]), int(one[2]), one[3], int(one[4])) for one in found]

    return told


def waiting(add, **options):
    return add.s(2).set(**(options or {"delayq_after": 2 * DAY}))


def apply(add, *parts):
    return chord([add.s(1), *parts])(add.si(3))


def part(app, name="add"):
    """A part that is sent by itself."""
    return app.signature(name, (1,), chord=app.signature("body"), group_id="g")


def run_part(task):
    """Run a task as a part of a chord, as a worker does."""
    request = {"id": "a", "group": "g", "chord": dict(task.app.signature("body"))}
    build_tracer(task.name, task, app=task.app)("a", (), {}, request)


def retry(add):
    @add.app.task(name="t", bind=True)
    def task(self):
        raise self.retry(countdown=2 * DAY)

    add.app.conf.delayq_capture_eta = True
    run_part(task)


def defer(add):
    @add.app.task(name="t", bind=True)
    def task(self):
        raise self.defer(after=2 * DAY)

    run_part(task)


def captured(add):
    add.app.conf.delayq_capture_eta = True
    apply(add, waiting(add, countdown=2 * DAY))


def held(add, **options):
    chord([add.s(1), waiting(add, **options)], add.si(3)).delay_until(FAR)


WAITS = {
    "an option": lambda add: apply(add, waiting(add)),
    "delay_for": lambda add: part(add.app).delay_for(2 * DAY),
    "schedule_many": lambda add: add.app.delayq.schedule_many(
        part(add.app), [((), {"y": number}) for number in range(9)], after=2 * DAY
    ),
    "captured": captured,
    "retry": retry,
    "defer": defer,
    "of a group": lambda add: apply(add, group(add.s(2), waiting(add))),
    "of a chain": lambda add: apply(add, waiting(add) | add.s(3)),
    "before a chord": lambda add: apply(
        add, chain(waiting(add), chord([add.s(3), add.s(4)], add.si(5)))
    ),
    "of a held chord": held,
    "of a held chord, by Celery": lambda add: held(add, countdown=2 * DAY),
    "of a held chord, until a time": lambda add: held(add, delayq_at=FAR + 2 * DAY),
}


@pytest.mark.parametrize("way", WAITS)
def test_a_part_that_waits_too_long_causes_one_warning_at_its_call(add, told, way):
    WAITS[way](add)

    [(waits, keeps, setting, least)] = told()
    assert (keeps, setting) == (DAY, OF_CHORDS)
    assert DAY < waits <= 2 * DAY  # an eta comes nearer while Celery makes its message
    assert least - waits in (0, 1)


def test_the_least_value_of_the_warning_keeps_the_chord_s_counter_for_longer_than_the_wait(
    add, told, delayq_app, redis_server
):
    with redis_server.client(db=1) as results:
        apply(add, waiting(add))
        [(waits, _, setting, least)] = told()
        [short] = results.keys("*.s")
        assert results.pttl(short) < 1000 * waits

        app = delayq_app(redis_server.url(), redis_server.url(1), **{setting: least})
        before = now_ms(results)
        apply(app.task(name="add")(noop), waiting(add))
        [long] = {*results.keys("*.s")} - {short}
        assert now_ms(results) + results.pttl(long) > before + 1000 * waits
    assert len(told()) == 1


def now_ms(client):
    seconds, us = client.time()
    return 1000 * seconds + us // 1000


BACKENDS = {"cache+memory://": OF_CHORDS, f"{__name__}:Database": "result_expires"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_setting_is_the_one_that_the_backend_reads(delayq_app, url, told, backend):
    long, short = timedelta(days=9), timedelta(hours=1)
    both = {"result_expires": long, "result_chord_expires": long}
    app = delayq_app(url, backend, **{**both, BACKENDS[backend]: short})

    part(app).delay_for(DAY)

    assert told() == [(DAY, 3600, BACKENDS[backend], DAY + 1)]


def test_each_task_is_warned_of_once_and_again_if_it_waits_longer(app, add, told):
    apply(add, *(waiting(add) for _ in range(3)))
    part(app, "other").delay_for(2 * DAY)
    part(add.app).delay_for(1.5 * DAY)
    part(add.app).delay_for(3 * DAY)

    assert [waits for waits, *_ in told()] == [2 * DAY, 2 * DAY, 3 * DAY]


QUIET = {
    "a short wait": lambda add: part(add.app).delay_for(DAY - 1),
    "a group": lambda add: group(add.s(1), waiting(add)).apply_async(),
    "a chain": lambda add: chain(add.s(1), waiting(add)).apply_async(),
    "a chain before a chord": lambda add: chain(
        waiting(add), chord([add.s(1), add.s(2)], add.si(3))
    ).apply_async(),
    "the body": lambda add: chord([add.s(1), add.s(2)])(waiting(add)),
    "a whole chord": lambda add: chord([add.s(1), add.s(2)], add.si(3)).delay_for(2 * DAY),
}


@pytest.mark.parametrize("wait", QUIET)
def test_a_task_whose_wait_no_chord_has_to_outlast_is_not_warned_of(add, told, wait):
    QUIET[wait](add)

    assert told() == []


@pytest.mark.parametrize(
    ("backend", "expires"),
    [("disabled://", DAY), ("cache+memory://", None), ("cache+memory://", 0)],
)
def test_without_results_or_their_expiry_no_part_is_warned_of(
    delayq_app, url, told, backend, expires
):
    app = delayq_app(url, backend, result_expires=expires)

    assert part(app).delay_for(2 * DAY)
    assert told() == []
