"""A story of the example: each thing that is wrong is reported in a sentence."""

from dataclasses import dataclass

import pytest

from tests.readme.document import ROOT

PROMISED = 1000.0


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


@pytest.fixture
def problems(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "example_project")
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
