"""`delayq pause` and `resume`: of a name, perhaps misspelt, and of everything, which asks first."""

import pytest

from tests.app.support import FAR, LONG_AGO
from tests.cli.conftest import MODULE

NO_QUEUE = "this app knows no queue 'mial', and nothing waits for it\n"
NO_TASK = "this app knows no task 'shop.remnid', and none waits\n"


@pytest.mark.parametrize(
    ("what", "name", "note"), [("queue", "mial", NO_QUEUE), ("task", "shop.remnid", NO_TASK)]
)
def test_an_unknown_name_is_paused_with_a_note(app, run, what, name, note):
    app.send_task("t", task_id="other", delayq_at=FAR)

    result = run("pause", f"--{what}", name)

    assert (result.stdout, result.stderr) == (f"{what} {name} is paused\n", note)
    assert result.exit_code == 0
    [pause] = app.delayq.pauses()
    assert getattr(pause, what) == name
    # A second call changes nothing: a pause does not make a name known.
    assert run("pause", f"--{what}", name).stderr == note


@pytest.mark.parametrize(("what", "name"), [("queue", "mail"), ("task", "shop.remind")])
def test_a_name_with_a_waiting_task_has_no_note(app, run, what, name):
    app.send_task("shop.remind", task_id="one", queue="mail", delayq_at=FAR)
    assert run("pause", f"--{what}", name).output == f"{what} {name} is paused\n"


def test_a_large_store_is_not_looked_through_for_a_note(app, run, limits):
    limits(unknown_shown=1)
    app.send_task("t", task_id="other", delayq_at=FAR)
    assert run("pause", "--queue", "mial").stderr == NO_QUEUE
    app.send_task("t", task_id="another", delayq_at=FAR)
    assert run("pause", "--queue", "mial").output == "queue mial is paused\n"


def test_paused_tasks_count_for_how_large_a_store_is(app, run, limits):
    limits(unknown_shown=1)
    app.delayq.pause(task="t")
    for task_id in "ab":
        app.send_task("t", task_id=task_id, delayq_at=LONG_AGO)
    app.delayq.hand_over()
    assert app.delayq.counts().paused == 2
    assert run("pause", "--queue", "mial").output == "queue mial is paused\n"


def test_a_name_that_the_app_knows_has_no_note(app, run):
    app.task(name="shop.remind")(print)
    assert run("pause", "--task", "shop.remind").output == "task shop.remind is paused\n"
    assert run("pause", "--queue", "celery").output == "queue celery is paused\n"
    assert run("pause", "--all", "--yes").output == "everything is paused\n"


def test_a_task_is_known_whose_module_a_worker_would_import(app, run, tmp_path, monkeypatch):
    (tmp_path / "delayq_pausing_tasks.py").write_text(
        f"import {MODULE} as project\n\nproject.app.task(name='late.one')(print)\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    app.conf.include = ["delayq_pausing_tasks"]

    result = run("pause", "--task", "late.one")
    assert (result.output, result.exit_code) == ("task late.one is paused\n", 0)


def test_a_project_that_cannot_be_imported_is_paused_all_the_same(app, run):
    app.conf.include = ["delayq_no_such_module"]
    result = run("pause", "--task", "late.one")
    assert (result.output, result.exit_code) == ("task late.one is paused\n", 0)


def test_resuming_everything_names_the_pauses_that_there_are(app, said, refused):
    assert refused("resume", "--all") == ["Error: nothing is paused"]
    app.delayq.pause(queue="my mail")
    app.delayq.pause(task="shop.remind")

    [sentence] = refused("resume", "--all", "--yes")
    assert sentence == (
        "Error: there is no pause of everything; paused: task shop.remind "
        f"(celery -A {MODULE} delayq resume --task shop.remind); queue my mail "
        f"(celery -A {MODULE} delayq resume --queue 'my mail')"
    )
    assert refused("resume", "--queue", "other") == ["Error: queue other is not paused"]
    said("resume", "--queue", "my mail")
    said("resume", "--task", "shop.remind")
    app.delayq.pause(all=True)
    assert said("resume", "--all", "--yes") == ["everything is resumed"]


def test_before_it_is_due_show_and_list_say_what_of_it_is_paused(app, said):
    app.send_task("t", task_id="a", queue="mail", delayq_at=FAR)
    app.send_task("t", task_id="b", queue="other", delayq_at=FAR)
    assert "paused" not in "".join([*said("list"), *said("show", "a")])

    app.delayq.pause(queue="mail")

    heading, first, second = said("list")
    assert first.endswith("scheduled, queue mail paused")
    assert second.endswith("scheduled")
    assert heading.split() == ["ID", "DUE", "(UTC)", "IN", "TASK", "ARGS", "QUEUE", "STATE"]
    assert "paused_by queue mail" in said("show", "a")
    assert '"paused_by": ["queue mail"]' in said("show", "a", "--json")[0]
    assert "paused_by" not in said("show", "b", "--json")[0]


def test_commands_agree_on_a_paused_task_that_no_scanner_has_met(app, said):
    app.delayq.pause(queue="mail")
    app.send_task("t", task_id="a", queue="mail", delayq_at=LONG_AGO)
    assert said("list", "--state", "paused", "--ids") == ["a"]
    assert said("list", "--overdue", "--ids") == []
    assert "state     PAUSED" in said("show", "a")


BARE = "Error: Name a --queue or a --task, or pass --all."


@pytest.mark.parametrize("command", ["pause", "resume"])
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--yes"], BARE),
        (["--queue", "mail", "--task", "t"], BARE),
        (["--all", "--queue", "mail"], BARE),
        (["--queue", "mail", "--dry-run"], "counts all tasks, for --all; it takes no name."),
    ],
)
def test_a_command_that_names_nothing_or_too_much_changes_nothing(app, run, command, words, why):
    app.delayq.pause(queue="mail")
    before = app.delayq.pauses()

    result = run(command, *words)

    assert result.exit_code == 2
    assert result.output.endswith(f"{why}\n")
    assert app.delayq.pauses() == before


def test_a_change_of_everything_asks_first(app, run, refused, said):
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    app.send_task("t", task_id="b", delayq_at=FAR)
    nobody = "There is no terminal to confirm; pass --yes"

    assert refused("pause", "--all") == [f"Error: pause everything: 2 tasks? {nobody}"]
    assert said("pause", "--all", "--dry-run") == ["everything would be paused: 2 tasks"]
    assert app.delayq.pauses() == []
    app.delayq.pause(all=True)

    assert refused("resume", "--all") == [f"Error: resume everything: 1 task due? {nobody}"]
    assert said("resume", "--all", "--dry-run") == ["everything would be resumed: 1 task due"]
    assert [pause.resumed for pause in app.delayq.pauses()] == [False]
