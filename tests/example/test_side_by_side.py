"""The first part of the example: each broken promise is reported in a sentence."""

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest

from tests.readme.document import ROOT


class Result:
    """A result of one side; *ran* is when its task ended, or None."""

    def __init__(self, ran):
        self.id, self.date_done = "a", ran
        self.successful = lambda: ran is not None


@pytest.fixture
def play(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "example_project")
    from side_by_side import play

    for seconds in ("NOT_COMING", "LATEST"):
        monkeypatch.setattr(play, seconds, 0)
    monkeypatch.setattr(play.Play, "_unacked", list)
    lines = []
    redis = SimpleNamespace(keeps=True)
    made = play.Play(tmp_path, redis, lambda _now, *texts: lines.append(texts))
    made.call_of = lambda ran: play.Call("ann", Result(None), due(), Result(ran), due())
    made.lines = lines
    return made


def due():
    """A due time so long ago that no call waits."""
    return datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("late", "told", "wrong"),
    [
        (0.005, "ann ran, 5 ms late", []),
        (-0.5, "ann ran, -500 ms late", ["side by side: ann ran early"]),
        (None, "ann did not run", ["side by side: ann did not run"]),
    ],
)
def test_a_task_that_runs_early_or_not_at_all_is_reported(play, late, told, wrong):
    play._watch(play.call_of(None if late is None else due() + timedelta(seconds=late)))
    assert play.lines == [("ann did not run", told)]
    assert play.wrong == wrong


@pytest.mark.parametrize(
    ("ran", "told", "wrong"),
    [
        (None, "ann did not run", []),
        (due(), "ann ran", ["side by side: ann ran, and was cancelled"]),
    ],
)
def test_a_cancelled_task_that_runs_is_reported(play, ran, told, wrong):
    play._never(play.call_of(ran))
    assert play.lines == [("ann did not run", told)]
    assert play.wrong == wrong


@pytest.mark.parametrize("runs", [0, 1, 2])
def test_a_task_that_does_not_run_exactly_once_is_reported(play, tmp_path, runs):
    (tmp_path / "log").write_text("Task t[a] succeeded in 0.1s\n" * runs)
    play._delayed._logs.append(tmp_path / "log")
    play._watched.append(play.call_of(due()))
    play._count()
    assert play.wrong == ([] if runs == 1 else [f"side by side: ann ran {runs} times"])
