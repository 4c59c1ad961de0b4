"""`delayq edit`: its arguments, output and exit status."""

import math
import sys
import types
from datetime import datetime

import pytest

from tests.app.support import FAR, envelope, redis_ms, to_ms


@pytest.fixture
def one(app):
    app.send_task("t", (1,), {"y": 2}, task_id="one", delayq_at=FAR)


def test_arguments_priority_and_expiry_are_changed(one, said, app):
    assert said(
        "edit", "one", "--args", '["ü", null]', "--kwargs", "{}", "--priority", "6",
        "--expires", "by:+60",
    ) == ["task one edited"]  # fmt: skip

    task, message = app.delayq.get("one"), envelope(app.delayq, "one")
    assert (task.args, task.kwargs) == (("ü", None), {})
    assert message.properties["priority"] == 6
    assert message.headers["expires"] == "2100-01-01T00:01:00.000000+00:00"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2150-01-01T09:00", "2150-01-01T00:00:00+00:00"),
        ("by:+0.5", "2100-01-01T00:00:00.500000+00:00"),
        ("never", None),
    ],
)
def test_an_expiry_is_a_time_a_span_or_never(one, said, app, given, expected):
    app.conf.timezone = "Asia/Tokyo"
    said("edit", "one", "--expires", "by:+60")

    said("edit", "one", "--expires", given)

    assert envelope(app.delayq, "one").headers["expires"] == expected


def test_an_expiry_from_now_is_by_redis_s_clock_and_does_not_move_with_the_task(
    one, said, app, redis
):
    before = math.floor(redis_ms(redis))  # rounded down to whole milliseconds, as the command does
    said("edit", "one", "--expires", "+1h")
    expires = envelope(app.delayq, "one").headers["expires"]
    assert before <= to_ms(datetime.fromisoformat(expires)) - 3_600_000 <= redis_ms(redis)
    said("reschedule", "one", "by:-1h")
    assert envelope(app.delayq, "one").headers["expires"] == expires


def test_a_word_that_is_no_expiry_is_a_usage_error(one, app, misused):
    before = app.delayq.get("one")
    assert "'--expires': 'by:60' is not a time; expected " in misused(
        "edit", "one", "--args", "[2]", "--expires", "by:60"
    )
    assert app.delayq.get("one") == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "Say what to change: --args, --kwargs, --priority, --expires, --new-queue,"),
        (["--new-queue", ""], "queue is ''; expected a queue's name"),
        (["--add-tag", ""], "add_tags is ''; expected text of 1 to 255 bytes, without NUL"),
        (["--args", "(1,)"], "--args is '(1,)'; expected JSON"),
        (["--kwargs", "[]"], "kwargs is []; expected a mapping"),
    ],
)
def test_an_invalid_edit_is_a_usage_error_and_changes_nothing(one, app, misused, options, words):
    before = app.delayq.get("one")

    assert misused("edit", "one", *options).startswith(f"Error: {words}")
    assert app.delayq.get("one") == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--args", "[1, 2]"], "Error: add() takes 1 positional argument"),
        (["--new-key", "k"], "Error: task 'two' is already scheduled under this key"),
    ],
    ids=["arguments that do not fit", "a key that is taken"],
)
def test_an_edit_that_cannot_be_is_one_line(app, refused, options, words):
    @app.task(name="add")
    def add(x):
        return x

    app.send_task("add", (1,), task_id="one", delayq_at=FAR)
    app.send_task("t", task_id="two", delayq_at=FAR, delayq_key="k")

    [said] = refused("edit", "one", *options)

    assert said.startswith(words)
    assert app.delayq.get("one").args == (1,)


# Queue, key and tags; many tasks.


def test_queue_key_and_tags_are_changed(one, said, app):
    changes = ["--new-queue", "new", "--new-key", "k", "--add-tag", "t", "--add-tag", "u"]
    assert said("edit", "one", *changes) == ["task one edited"]
    assert said("edit", "one", "--remove-tag", "t") == ["task one edited"]

    task = app.delayq.get(key="k")
    assert (task.id, task.queue, task.tags) == ("one", "new", ("u",))


def test_a_selection_is_edited(app, said):
    for task_id, queue in (("a", "old"), ("b", "old"), ("c", "other")):
        app.send_task("t", task_id=task_id, queue=queue, delayq_at=FAR)

    line = ("edit", "--queue", "old", "--new-queue", "new")
    assert said(*line, "--dry-run") == ["2 tasks would be edited"]
    assert said(*line, "--yes") == ["2 tasks edited"]

    assert {one.id for one in app.delayq.select(queue="new")} == {"a", "b"}


@pytest.mark.parametrize("who", [["--key", "k"], ["one", "two"], ["-", "--yes"], ["--all"]])
def test_a_new_key_is_for_one_id(one, misused, who):
    assert misused("edit", *who, "--new-key", "k") == "Error: --new-key takes one task, by its id."


# One revision, for all that change one task.

REVISED = (["cancel"], ["reschedule"], ["run-now"], ["retry"], ["remove"], ["edit"])


def _line(command, *who):
    more = {"reschedule": ["+5m"], "edit": ["--priority", "3"]}
    return [*command, *who, *more.get(command[0], [])]


@pytest.mark.parametrize("command", REVISED, ids=lambda one: one[0])
def test_another_revision_changes_nothing_and_its_own_does(one, app, run, command):
    before = app.delayq.get("one")

    result = run(*_line(command, "one", "--if-revision", "1"))

    assert result.exit_code == 1
    if command[0] not in ("retry", "remove"):
        assert result.output == (
            "task one no longer has the revision of --if-revision; nothing was changed\n"
        )
    assert app.delayq.get("one") == before
    again = run(*_line(command, "one", "--if-revision", str(before.revision)))
    assert again.exit_code == (command[0] in ("retry", "remove"))  # it is not dead


@pytest.mark.parametrize("command", REVISED, ids=lambda one: one[0])
@pytest.mark.parametrize("who", [["--all"], ["one", "two"], ["-", "--yes"]])
def test_a_revision_is_for_one_task(one, misused, command, who):
    words = "Error: --if-revision takes one task, by its id or --key."
    assert misused(*_line(command, *who, "--if-revision", "1")) == words


# Fitted to other code.


@pytest.fixture
def code(app, monkeypatch):
    """The app's new code: the task new, and a module with functions."""

    @app.task(name="new", shared=False)
    def new(x, y=0, currency=""):
        pass

    module = types.ModuleType("moves")
    module.priced = lambda args, kwargs: (args, {**kwargs, "currency": "EUR"})
    module.fails = lambda *_: 1 / 0
    monkeypatch.setitem(sys.modules, "moves", module)


@pytest.mark.usefixtures("one", "code")
def test_a_dry_run_shows_the_first_before_and_after(said, app):
    moves = ("--task", "t", "--to-task", "new", "--with", "moves:priced")
    assert said("edit", *moves, "--dry-run") == [
        "task one",
        "  - t (1,) {'y': 2}",
        "  + new (1,) {'y': 2, 'currency': 'EUR'}",
        "1 task would be edited",
    ]
    assert app.delayq.get("one").task == "t"
    assert said("edit", *moves, "--yes") == ["1 task edited"]
    assert app.delayq.get("one").kwargs == {"y": 2, "currency": "EUR"}


@pytest.mark.usefixtures("one", "code")
def test_a_function_is_found_in_the_current_directory_as_the_app_is(
    said, app, tmp_path, monkeypatch
):
    (tmp_path / "moves_here.py").write_text("def doubled(args, kwargs):\n    return (2,), kwargs\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    assert said("edit", "one", "--with", "moves_here:doubled") == ["task one edited"]
    assert app.delayq.get("one").args == (2,)


@pytest.mark.usefixtures("one", "code")
def test_old_names_and_new_ones_are_pairs(said, app):
    assert said("edit", "one", "--to-task", "t=new", "--to-task", "u=new") == ["task one edited"]
    assert app.delayq.get("one").task == "new"


@pytest.mark.usefixtures("one", "code")
def test_a_task_that_does_not_fit_stays_and_is_told(run, app):
    told = ["task one stays: ZeroDivisionError: division by zero"]
    for mode, count in (("--dry-run", "0 tasks would be edited"), ("--yes", "0 tasks edited")):
        result = run("edit", "--task", "t", "--with", "moves:fails", mode)
        assert result.exit_code == 1
        assert result.output.splitlines()[:2] == [*told, count]
    result = run("edit", "one", "--with", "moves:fails")
    assert (result.exit_code, result.output) == (1, "Error: ZeroDivisionError: division by zero\n")
    assert app.delayq.get("one").task == "t"


@pytest.mark.usefixtures("one", "code")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--to-task", "a", "--to-task", "b"], "--to-task takes one name, or OLD=NEW for each."),
        (["--to-task", "=b"], "--to-task takes one name, or OLD=NEW for each."),
        (["--to-task", "nowhere"], "a task that this app has"),
        (["--with", "nowhere:at_all"], "--with nowhere:at_all: No module named 'nowhere'"),
        (["--with", "moves:other"], "--with moves:other: "),
        (["--with", "moves"], "change is "),
        (["--with", "moves:priced", "--args", "[1]"], "change is "),
    ],
)
def test_what_is_no_name_or_function_is_refused(run, app, words, says):
    result = run("edit", "one", *words)
    assert result.exit_code != 0
    assert says in result.output
    assert "Traceback" not in result.output
    assert app.delayq.get("one").task == "t"
