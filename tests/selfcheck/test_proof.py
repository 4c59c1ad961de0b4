"""``./tests/run proof``: its page says what came of each trial; it ends with 1 if one broke."""

import os
from contextlib import nullcontext

import pytest

from tests.lab import proof
from tests.lab.faults.history import Problem, Verdict
from tests.lab.faults.site import Outcome as Books
from tests.lab.simulator.books import Finding
from tests.lab.simulator.simulation import Result
from tests.lab.thorough import commit

FINDING = Finding("early", "a is pushed 3 ms early")


def problems(**counts):
    kinds = [(kind.replace("_", " "), count) for kind, count in counts.items()]
    return [Problem(kind, "a", "is wrong") for kind, count in kinds for _ in range(count)]


def cells(verdict):
    counted = proof.counts(Books(verdict, settled=True, findings=[]), 1.25)
    return dict(zip(proof.HEADINGS[1:], counted, strict=False))


@pytest.fixture
def trials(monkeypatch, tmp_path):
    """The trials of the command; its page is in a folder of the test's own."""
    monkeypatch.setattr(proof, "PAGE", tmp_path / "proof.md")

    def set_trials(**outcomes):
        made = {name: proof.Trial(f"trial {name}", "all", run) for name, run in outcomes.items()}
        monkeypatch.setattr(proof, "TRIALS", made)

    return set_trials


@pytest.fixture
def histories(monkeypatch):
    """Let each history serve 600 requests; those named have a finding."""
    monkeypatch.setattr(proof, "laboratory", nullcontext)

    def set_findings(*seeds):
        def simulate(_lab, seed, **_sabotage):
            finding = FINDING if seed in seeds else None
            return Result(seed, finding, [], ["c1.1 lost"], 600, 1, rules=False)

        monkeypatch.setattr(proof, "simulate", simulate)

    return set_findings


def test_the_page_says_yes_if_each_promise_held(trials, capsys):
    trials(a=lambda seed: proof.Outcome(f"tried {seed}"))

    assert proof.prove(["a"], 7) == 0
    said = capsys.readouterr().out
    assert "\n\nYes, in each trial here.\n\n" in said
    assert "## trial a: as promised\n\n- Tried: tried 7\n- Promised: all\n" in said
    assert "`./tests/run proof --only a --seed 7`" in said
    assert said.startswith(proof.PAGE.read_text("utf-8").rstrip("\n"))


def test_the_page_says_which_promise_broke(trials, capsys):
    trials(a=lambda _: proof.Outcome("tried"), b=lambda _: proof.Outcome("tried", ["b was lost"]))

    assert proof.prove(["a", "b"], 7) == 1
    said = capsys.readouterr().out
    assert "\n\nNo. A promise broke: trial b.\n\n" in said
    assert "## trial b: BROKEN" in said
    assert "\nb was lost\n" in said


def test_a_trial_that_fails_is_broken_and_the_others_run(trials, capsys):
    trials(a=lambda _: 1 // 0, b=lambda _: proof.Outcome("tried"))

    assert proof.prove(["a", "b"], 7) == 1
    said = capsys.readouterr().out
    assert "## trial a: BROKEN" in said
    assert "ZeroDivisionError" in said
    assert "## trial b: as promised" in said


def test_the_tasks_of_a_row_are_the_sum_of_its_parts():
    wrong = problems(lost=1, early=3, twice_unmarked=2, twice_marked=4, left_over=5)
    row = cells(Verdict(wrong, scheduled=2000, cancelled=100, handed_over=1500, dead=6, waiting=55))

    parts = ("cancelled", "waiting", "arrived once", "twice, marked", "twice, unmarked", "lost")
    assert row["tasks"] == "2,000"
    assert row["waiting"] == "50"
    assert row["left over"] == "11"
    assert row["early"] == "3"
    assert sum(int(row[part].replace(",", "")) for part in (*parts, "left over")) == 2000


def test_the_simulator_serves_as_many_requests_as_it_should(histories, monkeypatch):
    histories()
    monkeypatch.setattr(proof, "REQUESTS", 2_000)

    outcome = proof.in_simulator(31)
    assert outcome.broken == []
    assert "2,400 requests in the histories 31 to 34, with 4 faults" in outcome.tried


def test_a_finding_of_the_simulator_breaks_a_promise(histories):
    histories(33)

    outcome = proof.in_simulator(31)
    assert "1,800 requests in the histories 31 to 33" in outcome.tried
    assert outcome.broken == [str(FINDING), "its history: ./tests/run simulate --seed 33"]


def test_a_safeguard_that_the_simulator_does_not_miss_breaks_a_promise(histories):
    histories()

    outcome = proof.without_a_safeguard(7)
    assert outcome.broken == ["the simulator does not miss it: none of 300 histories has a finding"]


def test_the_seed_draws_the_safeguard(histories):
    histories()

    tried = [proof.without_a_safeguard(seed).tried for seed in (7, 7, *range(20))]
    assert tried[0] == tried[1]
    assert len({*tried}) > 5


@pytest.mark.parametrize("path", ["", os.environ["PATH"]])
def test_the_commit_is_unknown_without_git_or_a_repository(monkeypatch, tmp_path, path):
    monkeypatch.setenv("PATH", path)
    monkeypatch.chdir(tmp_path)
    assert commit() == "unknown"
