"""Completion on Tab, and what is found by a part of its name."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from celery.bin.celery import celery

from celery_delayq.core.errors import StoreDiffers
from tests.app.support import FAR
from tests.cli import conftest
from tests.cli.conftest import MODULE
from tests.readme.document import page
from tests.support.places import at
from tests.support.terminal import Terminal
from tests.support.waiting import PATIENCE, eventually

# Completion on Tab, as a shell asks for it: docs/reference/cli.md has the lines for each.


SHELLS = ["bash", "zsh", "fish"]
DUE = ["--due", "--due-from", "--due-before"]


@pytest.fixture
def answered(app, project, capsys, monkeypatch):
    """What ``celery`` prints if a shell asks: ``answered("bash_complete", "celery", "-A", …)``."""

    def ask(instruction, *words):
        project(app)
        monkeypatch.setenv("_CELERY_COMPLETE", instruction)
        monkeypatch.setenv("COMP_WORDS", " ".join(words))
        at = "".join(words[-1:]) if "fish" in instruction else f"{len(words) - 1}"
        monkeypatch.setenv("COMP_CWORD", at)
        with pytest.raises(SystemExit):
            celery.main([], prog_name="celery")
        return capsys.readouterr().out

    return ask


def values(shell, text):
    """The values that a shell reads."""
    lines = text.splitlines()
    if shell == "zsh":
        return lines[1::3]  # a kind, a value, and its help
    return [line.partition(",")[2].partition("\t")[0] for line in lines]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["can"], ["cancel"]),
        (["list", "--due"], DUE),
        (["cancel", "--due"], DUE),
        (["list", "--state", "d"], ["dead"]),
        (["rules", "pa"], ["pause"]),
    ],
)
def test_a_shell_completes_commands_options_and_their_values(answered, shell, words, expected):
    text = answered(f"{shell}_complete", "celery", "-A", MODULE, "delayq", *words)
    assert values(shell, text) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_its_script(answered, shell):
    assert f"_CELERY_COMPLETE={shell}_complete" in answered(f"{shell}_source")


PROJECT = """
from celery import Celery
from celery_delayq import DelayQ

app = Celery("proj", broker="redis://127.0.0.1:1/0")
DelayQ(app)
"""


@pytest.fixture
def bash(tmp_path):
    """A bash with its line of the page, as a user has it: type, and wait for what stands there."""
    (tmp_path / f"{MODULE}.py").write_text(PROJECT)
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
        "HOME": str(tmp_path),
        "TERM": "dumb",
    }
    terminal = Terminal(columns=200)
    started = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=terminal.theirs, stdout=terminal.theirs, stderr=terminal.theirs,
        env=environment, start_new_session=True,
    )  # fmt: skip

    def type_and_see(keys, seen):
        before = len(terminal.so_far)
        terminal.type(keys)
        eventually(lambda: seen in terminal.so_far[before:], PATIENCE)

    yield type_and_see
    started.kill()
    started.wait()
    terminal.close()


def test_bash_completes_a_command_an_option_and_a_value_on_tab(bash):
    [line] = [
        line.split("`")[3].replace("\\|", "|")
        for line in page("reference/cli").text.splitlines()
        if line.startswith("| bash")
    ]
    bash(f"{line}; echo re''ady\n", "ready")
    bash(f"celery -A {MODULE} delayq can\t", "cancel ")
    bash("--due-b\t", "--due-before ")
    bash("noon --state de\t", "dead ")


# The terminal finds what a user knows a part of.


@pytest.fixture
def tasks(app):
    for number in range(3):
        app.send_task(
            "shop.remind", (f"user-{number}",), task_id=f"order-{number}", queue="mail",
            delayq_at=FAR, delayq_tags=["customer:7"],
        )  # fmt: skip


@pytest.mark.usefixtures("tasks")
def test_the_beginning_of_an_id_shows_the_only_task_that_has_it(app, said, refused):
    app.send_task("t", task_id="bill-0001-x", delayq_at=FAR)

    assert any(line.split() == ["id", "bill-0001-x"] for line in said("show", "bill-00"))
    assert refused("show", "order-") == [
        "the ids of more than one task begin with 'order-':", "order-0", "order-1", "order-2",
    ]  # fmt: skip
    assert refused("show", "bill-")[0].startswith("task bill- is not scheduled")
    assert "order-9" in refused("show", "order-9")[0]


UUIDS = [f"8b0ce8b4-1f0f-4cd5-9a1c-9d1f7b6f7a5{number}" for number in range(3)]
OTHER = "aaaaaaaa-1f0f-4cd5-9a1c-9d1f7b6f7a53"


@pytest.fixture
def uuids(app):
    for each in (*UUIDS, OTHER):
        app.send_task("t", task_id=each, delayq_at=FAR)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("cancel {}", "cancelled"),
        ("reschedule {} 'tomorrow 9:00'", "rescheduled to .* 09:00:00 UTC"),
        ("reschedule {} 'in 2 h'", "rescheduled to .* UTC"),
        ("run-now {}", "made due now"),
        ("edit {} --priority 3", "edited"),
        ("retry {}", "made due now"),
        ("remove {}", "removed"),
    ],
)
def test_a_change_takes_the_first_8_characters_of_a_uuid(app, uuids, said, line, what):
    if line.startswith(("retry", "remove")):
        app.delayq.cancel(OTHER)
        at(app.delayq, "dead", OTHER, queue="broken")
    [answer] = said(*shlex.split(line.format(OTHER[:8])))
    assert re.fullmatch(f"task {OTHER} {what}", answer)
    assert all(app.delayq.get(each).changed == app.delayq.get(each).created for each in UUIDS)


@pytest.mark.usefixtures("uuids")
def test_of_several_that_begin_so_none_is_changed_and_they_are_listed(app, refused):
    beginning = UUIDS[0][:13]
    several = f"the ids of more than one task begin with {beginning!r}; nothing was changed"
    assert refused("cancel", beginning) == [f"{several}, name one of them:", *UUIDS]
    assert app.delayq.counts().scheduled == 4


@pytest.mark.usefixtures("tasks", "uuids")
@pytest.mark.parametrize("beginning", ["order-", OTHER[:7], "AAAAAAAA", "aaaaaaab"])
def test_a_shorter_beginning_or_that_of_another_id_is_no_task(app, refused, beginning):
    assert refused("cancel", beginning)[0].startswith(f"task {beginning} is not scheduled in ")
    assert app.delayq.counts().scheduled == 7


@pytest.mark.usefixtures("uuids")
def test_a_whole_id_is_that_task_even_if_others_begin_so(app, said):
    app.send_task("t", task_id=OTHER[:8], delayq_at=FAR)
    app.send_task("t", task_id="bbbbbbbb-not-a-uuid", delayq_at=FAR)
    assert said("cancel", OTHER[:8]) == [f"task {OTHER[:8]} cancelled"]
    assert app.delayq.get(OTHER) is not None


def test_an_id_of_another_form_is_always_whole(app, refused):
    app.send_task("t", task_id="20300131-000042", delayq_at=FAR)
    assert refused("cancel", "20300131-00004")[0].startswith("task 20300131-00004 is not scheduled")


@pytest.mark.usefixtures("tasks")
def test_a_list_of_tasks_with_a_text_in_their_arguments(printed):
    assert printed("list", "--text", "USER-1", "--ids") == ["order-1"]
    assert printed("list", "--text", "user", "--ids", "-n", "2") == ["order-0", "order-1"]


@pytest.mark.usefixtures("tasks")
def test_a_tag_that_matches_nothing_may_mean_another(run):
    # Tasks of other tests' modules may be alike, too.
    assert re.search(r"did you mean .*\bcustomer:7\b.*\?", run("list", "--tag", "customer").stderr)


def test_advice_in_an_error_names_the_app_that_was_typed(app, run, monkeypatch):
    def differs(*_):
        raise StoreDiffers("delayq_shards", "1", "3")

    monkeypatch.setattr(type(app.delayq.services.entries), "find", differs)
    monkeypatch.setattr(conftest, "MODULE", "shop")

    assert "run: celery -A shop delayq reshard 3" in run("show", "a").output
