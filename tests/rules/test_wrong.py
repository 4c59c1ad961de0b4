"""Each wrong argument of ``delayq.every`` is refused before anything is written."""

from datetime import timedelta

import pytest
from celery import group
from celery.schedules import BaseSchedule, crontab, schedule

from celery_delayq.errors import InvalidOption
from tests.rules.support import DAILY, every
from tests.support.shards import each


class Solar(BaseSchedule):
    """Stands for a schedule of a kind that no text has."""


class Workdays(crontab):
    """A schedule of a user's own, which could mean another time."""


FIELDS, INTERVAL = "a text of five fields", "an interval from 1 second to 366 days"
BYTES, ZONE = "expected text of 1 to 200 bytes", "the name of a time zone"
VERSION = "a whole number from 0 to 999999999999"

ARGUMENTS = [
    ({"name": ""}, f"name is ''; {BYTES}"),
    ({"name": "ä" * 101}, BYTES),
    ({"name": "a\0b"}, "without NUL"),
    ({"name": 5}, "name is 5"),
    ({"missed": "some"}, "missed is 'some'; expected one, none or all"),
    ({"jitter": -1}, "jitter is -1; expected a number of seconds from 0 to 86400"),
    ({"jitter": True}, "jitter is True"),
    ({"tags": "x"}, "tags is 'x'"),
    ({"tags": ["x" * 300]}, "tag is 'xxx"),
    ({"tz": "Mars/Base"}, ZONE),
    ({"tz": "../etc"}, ZONE),
    ({"dialect": "quartz"}, "dialect is 'quartz'; expected cron or celery"),
    ({"schedule": "0 0 31 4,6 1-5", "dialect": "celery"}, "Bad day-of-month"),
    *(({"version": wrong}, VERSION) for wrong in (-1, 1.0, True, "2", 10**12, None)),
]
SCHEDULES = [
    ("x", FIELDS),
    ("* * * *", FIELDS),
    ("0 * * * * *", FIELDS),
    ("61 * * * *", "Bad minute"),
    ("0 0 1 * 1", "say dialect='cron' or dialect='celery'"),
    ("0 0 31 2 *", "Bad day-of-month"),
    (0.5, INTERVAL),
    ("every 0.999 s", INTERVAL),
    (timedelta(days=400), INTERVAL),
    (float("nan"), "schedule is nan"),
    (True, "schedule is True"),
    (None, "schedule is None"),
    (10**400, "expected a timedelta"),
    ("every ٣ s", "expected a timedelta"),
    (Solar(), "Solar is not supported"),
    (Workdays(hour=9), "Workdays is not supported"),
    (crontab(hour=9, nowfun=lambda: None), "expected one without nowfun; say tz="),
    (schedule(60, nowfun=lambda: None), "expected one without nowfun; say tz="),
    (schedule(7200, relative=True), "schedule(7200, relative=True)'; expected a crontab, or"),
    (lambda: 5, "function is not supported"),
]
ARGUMENTS += [({"schedule": given}, said) for given, said in SCHEDULES]
SIGNATURES = {
    "a canvas": (lambda report: group(report.s(), report.s()), "a plain task"),
    "no task": (lambda report: report.app.signature(None), "one of a task with a name"),
    "no JSON": (lambda report: report.s(object()), "arguments that are JSON"),
}
OPTIONS = [({"delayq_tags": tags}, "tags is") for tags in (5, "t", ["t"] * 40, {"t": 1})]
OPTIONS += [
    ({time: 5}, f"'{time}'; expected one without a time")
    for time in ("delayq_at", "delayq_after", "eta", "countdown")
]


@pytest.fixture
def refused(delayq, report, redis):
    """Set a rule, and return the sentence of its refusal."""

    def refused(signature=None, name="r", schedule=DAILY, **options):
        with pytest.raises(InvalidOption) as caught:
            every(delayq, name, signature or report.s(), schedule, **options)
        assert not any(redis.exists(key) for key in each("rules"))
        return str(caught.value)

    return refused


@pytest.mark.parametrize(("wrong", "said"), ARGUMENTS)
def test_a_wrong_argument_is_refused_in_a_sentence(refused, wrong, said):
    assert said in refused(**wrong)


@pytest.mark.parametrize(("make", "said"), SIGNATURES.values(), ids=SIGNATURES)
def test_a_signature_that_is_no_call_of_one_task_is_refused(report, refused, make, said):
    assert said in refused(make(report))


@pytest.mark.parametrize(("wrong", "said"), OPTIONS)
def test_a_signature_with_a_wrong_option_or_a_time_of_its_own_is_refused(
    report, refused, wrong, said
):
    assert said in refused(report.s().set(**wrong))


def test_a_task_that_would_run_at_once_is_refused(app, refused):
    app.conf.task_always_eager = True
    assert "task_always_eager is True" in refused()
