"""Rules beside new code: what it says itself takes their place, and it says that to nobody else."""

import pytest
from celery.signals import import_modules

from tests.preflight.conftest import rows_of
from tests.preflight.test_calls import one, two
from tests.rules.support import DAILY, set_fields, write

pytestmark = pytest.mark.libraries


@pytest.fixture
def rule(old):
    """A rule of the old code that is nobody's any more, with a run that waits."""
    old.task(name="report", shared=False)(one)
    rule = old.delayq.every("daily", old.signature("report", (1,)), DAILY, declared=False)
    write(old.delayq)
    return rule


@pytest.mark.usefixtures("rule")
def test_a_rule_has_a_row_beside_that_of_its_run(new):
    found = new({"other": one}).delayq.preflight()

    assert sorted(rows_of(found)) == [
        ("report", "unregistered", "rule", 1),
        ("report", "unregistered", "task", 1),
    ]
    of_rule = next(row for row in found.misfits if row.where == "rule")
    assert (of_rule.id, of_rule.level, found.rules) == ("daily", "error", 1)
    [run] = old_runs(new)
    assert of_rule.first_due == run.due
    assert "rules edit daily --to-task" in of_rule.advice


def old_runs(new):
    return [*new().delayq.tasks(tag="every:daily")]


@pytest.mark.usefixtures("rule")
def test_the_arguments_of_a_rule_bind_or_not(look):
    assert look({"report": one}) == []
    assert sorted(look({"report": two})) == [
        ("report", "arguments", "rule", 1),
        ("report", "arguments", "task", 1),
    ]


def test_the_links_of_a_rule_are_links(old, look):
    signature = old.signature("report", (1,)).set(link=old.signature("other"))
    old.delayq.every("daily", signature, DAILY, declared=False)
    assert look({"report": one}) == [("other", "unregistered", "link", 1)]


def test_a_paused_rule_is_looked_at_and_a_removed_one_is_not(rule, look, redis):
    rule.pause()
    assert look() == [("report", "unregistered", "rule", 1)]
    # Until a writer has cleared up its runs, the row of a removed rule stays.
    set_fields(redis, "daily", flags=lambda flags: f"{flags}r")
    assert look() == []


@pytest.fixture
def says():
    """Let an app say a rule while its modules are imported: ``says(app, "daily", "task")``."""
    receivers = []

    def says(app, name, task, told=list):
        def say(**_):
            told().append(app.delayq.every(name, app.signature(task, (1,)), DAILY))

        import_modules.connect(say, sender=app)
        receivers.append((say, app))

    yield says
    for say, app in receivers:
        import_modules.disconnect(say, sender=app)


@pytest.mark.usefixtures("rule")
def test_what_this_code_says_under_its_name_takes_its_place(new, says, redis):
    """The rule and its run go with the old code, so they are no problem; nothing is written."""
    app, made = new({"renamed": one}), []
    says(app, "daily", "renamed", lambda: made)
    before = {key: redis.dump(key) for key in redis.keys("*")}

    found = app.delayq.preflight()

    assert found
    assert [(row.task, row.level) for row in found.misfits] == [("report", "warning")]
    assert [(rule.name, rule.task) for rule in made] == [("daily", "renamed")]
    assert {key: redis.dump(key) for key in redis.keys("*")} == before
    # What is said later, and not for a look, is written.
    app.delayq.every("daily", app.signature("renamed", (1,)), DAILY, replace=True)
    assert app.delayq.rule("daily").task == "renamed"


@pytest.mark.usefixtures("rule")
def test_a_rule_that_went_with_the_old_code_is_a_warning(new, redis):
    set_fields(redis, "daily", declared=lambda _: "1")
    found = new().delayq.preflight()
    assert found
    assert sorted((row.where, row.level) for row in found.misfits) == [
        ("rule", "warning"),
        ("task", "warning"),
    ]


@pytest.mark.usefixtures("rule")
def test_what_this_code_says_has_to_fit_too(new, says):
    app = new({"other": one})
    says(app, "daily", "gone")
    assert ("gone", "unregistered", "rule", 1) in rows_of(app.delayq.preflight())


@pytest.mark.usefixtures("rule")
def test_a_rule_of_a_later_release_is_a_row(look, redis):
    set_fields(redis, "daily", plan=lambda plan: "[2" + plan[2:])
    assert look({"report": one}) == [("", "unreadable", "rule", 1)]
