"""Every command reports an error in one sentence and a status, never with a traceback.

The table has every operation, and nothing else; the documentation names each of them.
"""

import re
import unicodedata

import pytest
from celery.bin.celery import celery
from click.testing import CliRunner

from celery_delayq import DelayQ
from celery_delayq.core.store.scripts import load
from celery_delayq.operations.cli import delayq
from tests.app.support import FAR
from tests.operations.table import (
    HEALTH,
    LINES,
    NO_OPERATION_COMMANDS,
    NO_OPERATIONS,
    NOTES,
    ON_THE_DEAD,
    OPERATIONS,
    RESHARD,
    SERVICES,
    UPGRADE,
    each_face,
    each_operation,
    words,
)
from tests.readme.document import PAGES, page
from tests.support.ports import free_port

each_line = pytest.mark.parametrize("line", [*LINES, *NO_OPERATION_COMMANDS])
# Commands that end by themselves.
each_line_that_ends = pytest.mark.parametrize(
    "line", [line for line in (*LINES, *NO_OPERATION_COMMANDS) if line not in SERVICES]
)

HOSTILE = [
    *("two\nlines", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "back\x08\x08\x08space"),
    *("carriage\rreturn", "\x9b31m", "tab\there", "null\x00byte", "right\u202eleft"),
    "line\u2028separator",
]


def printable(text):
    """Whether a line is free of codes that move the cursor, set colours or reverse the text."""
    return not [char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")]


def test_the_commands_are_found_by_celery_and_say_what_they_do():
    result = CliRunner().invoke(celery, ["delayq", "--help"])

    assert result.exit_code == 0
    assert "Look at scheduled tasks" in result.output
    for name in delayq.list_commands(None):
        command = delayq.get_command(None, name)
        assert f"\n  {name} " in result.output
        assert command.help.partition("\n")[0] in result.output


@pytest.mark.parametrize("line", LINES)
def test_a_command_for_an_unscheduled_task_prints_one_line_and_ends_with_1(run, line):
    result = run(*words(line))
    if "{id}" in line:
        assert (result.exit_code, result.output.count("\n")) == (1, 1)
        assert "task a is not scheduled" in result.output
    else:
        # A cancel of many that nobody knows is not undone.
        assert result.exit_code == ("--bulk" in line)


@pytest.mark.parametrize("line", [line for line in LINES if "{id}" in line])
def test_the_output_about_an_id_is_plain_text(app, run, line):
    for text in HOSTILE:
        unknown = run(*words(line, text))
        app.send_task("t", task_id=text, delayq_at=FAR)
        known = run(*words(line, text))

        assert (unknown.exit_code, unknown.output.count("\n")) == (1, 1)
        assert known.exit_code == (line in ON_THE_DEAD), ascii(known.output)
        said = (unknown.output + known.output).split("\n")
        assert all(printable(one) for one in said), ascii(said)


@pytest.mark.parametrize("line", [line for line in LINES if "{id}" in line])
def test_an_id_that_is_too_long_is_refused_in_one_line(refused, line):
    [said] = refused(*words(line, "a" * 10_000))
    assert said.startswith("Error: task_id is 'aaa")
    assert said.endswith("; expected text of 1 to 512 bytes")


@each_line_that_ends
def test_an_app_without_delayq_is_told_what_to_do(make_app, url, refused, line):
    *_, sentence = refused(*words(line), app=make_app(url))
    assert sentence == "Error: the app 'tests' has no DelayQ; make one with DelayQ(app)"


@each_line_that_ends
def test_without_an_app_each_says_how_to_name_it(make_app, url, project, monkeypatch, line):
    app = make_app(url)
    project(app)  # which does not change the worker's options for good
    monkeypatch.setattr("celery.bin.base.get_current_app", lambda: app)

    result = CliRunner().invoke(celery, ["delayq", *words(line)])

    last = result.output.splitlines()[-1]
    assert last == f"Error: name the app: celery -A proj delayq {words(line)[0]}"
    assert result.exit_code == 2


@each_line_that_ends
def test_a_redis_that_is_away_is_a_sentence(delayq_app, refused, line):
    app = delayq_app(f"redis://127.0.0.1:{free_port()}/0")

    said = refused(*words(line), app=app)

    # For `health` and `doctor` a problem of the store is a finding, not an error.
    begins = "the store " if line in HEALTH else "Error: "
    if line == "doctor":
        *said, _advice, _runbook = said
        begins = "error    store "
    sentence = said[-1]
    assert sentence.startswith(begins)
    assert "refused" in sentence


@each_line
def test_a_wrong_setting_is_a_sentence(delayq_app, url, refused, line):
    app = delayq_app(url, delayq_prefix="no good")
    *_, sentence = refused(*words(line), app=app)
    assert sentence == (
        "Error: delayq_prefix is 'no good'; expected 1 to 64 letters, digits, dots, dashes or "
        "underscores"
    )


@each_line
def test_no_redis_at_all_is_a_sentence(delayq_app, refused, line):
    *_, sentence = refused(*words(line), app=delayq_app("memory://"))
    assert sentence.startswith("Error: delayq_url is None; expected a redis:// URL")


# The table.


COMMANDS = sorted({line.split()[0] for line in (*LINES, *NO_OPERATION_COMMANDS)})


def test_every_script_has_a_row():
    others = [*NOTES, *RESHARD, *UPGRADE]
    assert sorted([*{one.script for one in OPERATIONS}, *others]) == sorted(load())


def test_every_method_of_delayq_is_in_a_row_or_no_operation():
    methods = {
        name for name in dir(DelayQ) if callable(getattr(DelayQ, name)) and not name.startswith("_")
    }
    named = [name for one in OPERATIONS for name in one.face]
    assert sorted([*named, *NO_OPERATIONS]) == sorted(methods)


def test_every_command_is_in_a_row_or_no_operation():
    assert delayq.list_commands(None) == COMMANDS


@each_operation
def test_an_error_calls_all_that_changes_nothing_a_read(operation):
    step = operation.script if operation.changes else "read"
    assert load()[operation.script].step == step


@each_operation
def test_only_what_a_caller_does_is_told_apart_by_a_task_s_id(operation):
    assert operation.by in ("caller", "scanner", "worker")
    assert operation.by == "caller" or "{id}" not in "".join(operation.cli)


@each_face
def test_a_page_names_the_method(operation, method):
    assert re.search(rf"\.{method}\b|`{method}`", "".join(document.text for document in PAGES))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_names_the_command(command):
    assert re.search(rf"\bdelayq {command}\b|`{command}\b", page("reference/cli").text)
