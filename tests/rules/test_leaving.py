"""Leaving: runs of rules are not released, as beat would send the same slots."""

import pytest

from celery_delayq.errors import RulesRemain
from tests.rules.support import HOUR, every


@pytest.fixture(autouse=True)
def three(delayq, report):
    """Three rules, of which one is paused; and a task that no rule has written."""
    for name in "abc":
        every(delayq, name, report.s(7), HOUR)
    delayq.rule("c").pause()
    return report.apply_async((1,), delayq_after=600, delayq_tags=["every:a"])


@pytest.mark.parametrize("dry_run", [True, False])
def test_runs_of_rules_are_not_released(delayq, dry_run):
    with pytest.raises(RulesRemain) as caught:
        delayq.select(all=True).release(dry_run=dry_run)
    assert caught.value.count == 2
    assert str(caught.value).startswith("2 of these tasks are runs of recurring rules, which go on")
    assert delayq.counts().scheduled == 3
    assert delayq.hand_over() == 0


def test_other_tasks_are_released_also_while_there_are_rules(delayq):
    delayq.rule("a").remove()
    assert delayq.select(tag="every:a").release() == 1


@pytest.mark.parametrize("action", ["remove", "pause"])
def test_without_rules_at_work_all_is_released(app, delayq, run, action):
    assert run("rules", action, "--all", "--yes", app=app).output.endswith(f"{action}d\n")
    assert delayq.select(all=True).release() == 1


def test_the_command_says_what_to_do(app, run):
    found = run("release", "--all", "--yes", app=app)
    assert found.exit_code == 1
    assert "rules remove --all" in found.output


@pytest.mark.parametrize(
    ("action", "count"), [("pause", "2 rules"), ("resume", "1 rule"), ("remove", "3 rules")]
)
def test_all_rules_are_changed_at_once(app, delayq, run, action, count):
    done = f"{action}d"
    found = run("rules", action, "--all", "--yes", app=app)
    assert (found.exit_code, found.output) == (0, f"{count} {done}\n")
    left = {"pause": [True] * 3, "resume": [False] * 3, "remove": []}
    assert [rule.is_paused for rule in delayq.rules()] == left[action]


def test_to_change_all_rules_is_confirmed(app, delayq, run):
    found = run("rules", "remove", "--all", app=app)
    assert found.exit_code == 1
    assert "remove 3 rules? There is no terminal to confirm; pass --yes" in found.output
    assert len(delayq.rules()) == 3


@pytest.mark.parametrize("given", [("list", "--all"), ("remove", "a", "--all"), ("run", "--all")])
def test_all_is_of_some_actions_and_without_names(app, delayq, run, given):
    assert run("rules", *given, app=app).exit_code == 2
    assert len(delayq.rules()) == 3
