"""A task can be moved past its own expiry; the log then warns that it will not run."""

from datetime import datetime, timedelta, timezone

import pytest

from tests.app.support import FAR, LONG_AGO
from tests.support.places import take

DUE = datetime.fromtimestamp(FAR, timezone.utc)
DAY = timedelta(days=1)
EXPIRES = DUE + DAY
SAYS = (
    "task a: due at 2100-01-03T00:00:00+00:00, but expires at 2100-01-02T00:00:00+00:00: "
    "no worker will run it"
)
LONG = "x" * 3000  # too long for a template


def put(app, task_id="a", text="", **options):
    app.send_task("t", (text,), task_id=task_id, delayq_at=DUE, **options)


@pytest.fixture(params=["by itself", "with a template", "long", "with an id that is no plain text"])
def held(request, app):
    """A scheduled task that expires a day after it is due, in each form of record."""
    if request.param == "with a template":
        # Seen before, it shares one.
        put(app, "before", expires=EXPIRES)
        put(app, "and before", expires=EXPIRES)
    task_id = "a" if request.param != "with an id that is no plain text" else 'a "b"'
    put(app, task_id, LONG if request.param == "long" else "", expires=EXPIRES)
    return task_id


MOVES = {
    "at": lambda app, one: app.delayq.reschedule(one, EXPIRES + DAY),
    "by": lambda app, one: app.delayq.reschedule(one, by=2 * DAY),
    "result": lambda app, one: app.delayq.result(one).reschedule(by=2 * DAY),
    "selection": lambda app, _: app.delayq.select(task="t").reschedule(at=EXPIRES + DAY),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_move_past_the_expiry_logs_a_warning(app, held, caplog, move):
    moved = MOVES[move](app, held)
    assert moved
    assert app.delayq.get(held).due == EXPIRES + DAY
    [line] = caplog.messages
    assert SAYS.partition(":")[2] in line


def test_by_its_key_it_is_named_by_its_id(app, caplog):
    put(app, delayq_key="k", expires=EXPIRES)
    app.delayq.reschedule(key="k", by=2 * DAY)
    assert caplog.messages == [SAYS]


def test_of_many_the_first_is_named_and_the_others_are_counted(app, caplog):
    for number in range(5):
        put(app, str(number), expires=EXPIRES if number % 2 else None)
    app.delayq.select(task="t").reschedule(by=2 * DAY)
    [line] = caplog.messages
    assert line == SAYS.replace("task a", "task 1") + "; the same applies to 1 more"


@pytest.mark.parametrize("step", ["run_now", "retry"])
def test_run_now_and_retry_of_an_expired_task_log_a_warning(app, caplog, step):
    app.send_task("t", task_id="a", delayq_at=LONG_AGO, expires="2020-01-01T00:00:00+00:00")
    if step == "retry":
        take(app.delayq, "dead", "a")
    caplog.clear()

    assert getattr(app.delayq, step)("a")

    [line] = caplog.messages
    assert line.endswith(", but expires at 2020-01-01T00:00:00+00:00: no worker will run it")


@pytest.mark.parametrize("expires", [EXPIRES - 2 * DAY, -60, timedelta(days=-2)])
def test_an_edit_to_expire_before_the_due_time_logs_a_warning(app, caplog, expires):
    put(app)
    assert app.delayq.edit("a", expires=expires)
    [line] = caplog.messages
    assert line.startswith("task a: due at 2100-01-01T00:00:00+00:00, but expires at 20")


@pytest.mark.parametrize(
    ("options", "move"),
    [
        ({"expires": EXPIRES}, {"by": DAY / 2}),
        ({"expires": EXPIRES}, {"by": -DAY}),
        ({"expires": 60}, {"by": 2 * DAY}),
        ({}, {"by": 2 * DAY}),
        ({"headers": {"note": '"expires": "2000-01-01T00:00:00+00:00"'}}, {"by": DAY}),
    ],
)
def test_nothing_is_said_of_a_task_that_expires_later_or_never(app, caplog, options, move):
    put(app, **options)
    assert app.delayq.reschedule("a", **move)
    assert caplog.messages == []


def test_an_edit_of_something_else_says_nothing_of_the_expiry(app, caplog):
    put(app, expires=DUE - DAY)
    assert app.delayq.edit("a", priority=3)
    assert app.delayq.edit("a", expires=None)
    assert caplog.messages == []


def test_an_expiry_without_a_zone_is_utc_as_for_a_worker(app, caplog):
    app.conf.timezone = "Asia/Tokyo"
    put(app, expires=EXPIRES.replace(tzinfo=None))

    app.delayq.reschedule("a", EXPIRES - DAY / 24)
    assert caplog.messages == []
    app.delayq.reschedule("a", EXPIRES + DAY)
    assert caplog.messages == [SAYS]


def test_a_move_that_is_not_done_says_nothing(app, caplog):
    put(app, expires=EXPIRES)
    assert not app.delayq.reschedule("a", EXPIRES + DAY, only="earlier")
    assert not app.delayq.reschedule("nobody", EXPIRES + DAY)
    assert caplog.messages == []
