"""A story of the example: each thing that is wrong is reported in a sentence."""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import pytest

from celery_delayq import ScheduledResult
from tests.readme.document import ROOT

PROMISED = 1000.0
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass
class Run:
    """As the worker notes it."""

    id: str = "a"
    task: str = "scenes.topup.remind"
    began: float = PROMISED + 0.01
    due: float = PROMISED
    state: str = "SUCCESS"
    answer: str = "anna, pay"


class Stage:
    def __init__(self, runs):
        self.runs = runs

    def second(self, time):
        return time - PROMISED + 9


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "example_project")


@pytest.fixture
def problems():
    from story import Expected, Story

    def told(*runs):
        story = Story(Stage(runs))
        story.name = "topup"
        story.expected = {"a": Expected("anna", (PROMISED, PROMISED), "anna, pay")}
        return list(story.problems())

    return told


def test_a_single_run_in_time_is_no_problem(problems):
    assert problems(Run()) == []


def test_a_task_may_put_itself_off_before(problems):
    assert problems(Run(due=900.0, began=901.0, state="IGNORED"), Run()) == []


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        ([], "anna ran 0 times, not once"),
        ([Run(), Run()], "anna ran 2 times, not once"),
        ([Run(began=PROMISED - 0.001)], "'anna, pay' ran 1 ms early"),
        ([Run(began=PROMISED + 30.5)], "anna ran 30.50 s late; 30.00 s is the bound"),
        ([Run(due=PROMISED - 2)], "anna ran for 7.000 s, and was promised for 9.000 s"),
        ([Run(answer="ben")], "anna ended with SUCCESS, 'ben'; not with 'anna, pay'"),
        ([Run(state="FAILURE")], "anna ended with FAILURE, 'anna, pay'; not with 'anna, pay'"),
        ([Run(), Run(id="b")], "'anna, pay' ran, and should not have"),
    ],
)
def test_each_problem_has_a_sentence(problems, runs, sentence):
    assert problems(*runs) == [sentence]


class Due(ScheduledResult):
    """A result with this due time."""

    id, due, existed = "a", None, False

    def __init__(self, due):
        self.due = due


class Clocked:
    """A stage on which Redis's clock shows these times, one after the other."""

    def __init__(self, *times):
        self._times = iter(times)

    def redis_now(self):
        return next(self._times)

    def second(self, time):
        return time

    def tell(self, *_):
        pass


def us(microseconds):
    return EPOCH + timedelta(seconds=1000, microseconds=microseconds)


# In microseconds: the start and the end of a call, and the due time that it returned.
SOON = (500, 600)
LONG = (500, 50_700)  # Redis answered late


@pytest.mark.parametrize(
    ("call", "delay_ms", "due", "right"),
    [
        (SOON, 0, 0, True),
        (SOON, 0, 1000, False),
        (SOON, 0, -1000, False),
        (LONG, 0, 0, True),
        (LONG, 0, 50_000, True),
        (LONG, 0, 51_000, False),
        (SOON, 5, 6000, True),
        (SOON, 5, 5000, False),
        (SOON, 5, 7000, False),
        (LONG, 5, 6000, True),
        (LONG, 5, 56_000, True),
        (LONG, 5, 57_000, False),
        ((1000, 1000), 0, 1000, True),
        ((1000, 1000), 5, 6000, True),
        ((1000, 1000), 5, 7000, False),
    ],
)
def test_the_due_time_that_a_call_returns_is_held_to_the_rule_to_the_millisecond(
    call, delay_ms, due, right
):
    from story import Story

    story = Story(Clocked(*map(us, call)))

    story.does("anna opens the page", lambda: Due(us(due)), due_in=delay_ms / 1000)

    assert (not story.wrong) is right
