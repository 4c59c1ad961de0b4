"""The commands in a terminal: colours, progress, and text that fits its width."""

import io
import os
import re
import signal
import sys
import threading

import pytest
from celery.bin.celery import celery

from celery_delayq.core.hooks import acting
from celery_delayq.operations.cli import delayq
from tests.app.support import FAR, LONG_AGO
from tests.cli.conftest import MODULE
from tests.operations.test_cli import HOSTILE, printable
from tests.support.network import CUT
from tests.support.places import at
from tests.support.terminal import Terminal, lines_of

UUID = "8b0ce8b4-1f0f-4cd5-9a1c-9d1f7b6f7a53"
WIDTHS = [60, 80]
COLOUR = "\x1b["


@pytest.fixture(autouse=True)
def patient(limits):
    """Show no progress, however long a command takes on a busy machine."""
    limits(progress_s=float("inf"))


@pytest.fixture
def terminal(app, project, monkeypatch):
    """Run a command in a terminal, and return its screen: ``terminal(60, "list")``."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(columns, *arguments, options=(), app=app):
        project(app)
        one = Terminal(columns)
        monkeypatch.setenv("COLUMNS", str(columns))  # where click looks
        with monkeypatch.context() as patched:
            for name in ("stdout", "stderr"):
                end = io.TextIOWrapper(os.fdopen(os.dup(one.theirs), "wb", 0), "utf-8",
                                       write_through=True)  # fmt: skip
                patched.setattr(sys, name, end)
            words = [*options, "-A", MODULE, "delayq", *arguments]
            with pytest.raises(SystemExit) as ended:
                celery.main(words, prog_name="celery", standalone_mode=True)
            sys.stdout.close()
            sys.stderr.close()
        shown = one.close()
        assert ended.value.code in (0, 1, 130), shown
        return shown

    return run


@pytest.fixture
def tasks(app, redis):
    """A few usual ones, one that is dead, one that was refused, and one that is paused."""
    for number, queue in enumerate(("mail", "celery", "another_queue")):
        app.send_task(
            "shop.remind", (number,), task_id=f"{UUID[:-1]}{number}", queue=queue,
            delayq_at=FAR + number, delayq_tags=["x"], delayq_key=f"topup:{number}",
        )  # fmt: skip
    redis.set("broken", "not a list")
    at(app.delayq, "dead", "dead", name="shop.remind", queue="broken")
    app.send_task("shop.remind", task_id="refused", queue="broken", delayq_at=LONG_AGO)
    app.delayq.pause(queue="slow")
    app.send_task("shop.remind", task_id="parked", queue="slow", delayq_at=LONG_AGO)
    app.delayq.hand_over()


def test_long_arguments_are_wrapped_behind_their_name(app, terminal):
    app.send_task("t", ("one two three " * 20,), task_id="a", delayq_at=FAR)

    lines = lines_of(terminal(60, "show", "a"))

    args = lines[2 : next(at for at, line in enumerate(lines) if line.startswith("kwargs"))]
    assert args[0].startswith("args     ('one two three")
    assert len(args) > 2
    assert all(line.startswith("         ") for line in args[1:])
    assert max(map(len, args)) <= 60


def test_hostile_text_does_nothing_to_a_terminal(app, terminal):
    texts = [*HOSTILE, "[red]red[/red]", ":boom:", "[/]", "\\[x]"]
    for number, text in enumerate(texts):
        app.send_task(text, (text,), task_id=f"{number}{text}", queue=text, delayq_at=FAR)

    shown = terminal(160, "list")
    lines = lines_of(shown)

    assert all(map(printable, lines)), ascii(shown)
    assert len(lines) == 1 + len(texts)
    # No text was interpreted as markup.
    for text in ("[red]red[/red]", ":boom:", "[/]", "\\[x]"):
        assert sum(line.count(text) for line in lines) >= 2
    for number, text in enumerate(texts):
        assert all(map(printable, lines_of(terminal(60, "show", f"{number}{text}"))))


@pytest.mark.parametrize("by", ["option", "environment", "no rich", "dumb"])
def test_a_command_says_the_same_without_colours(tasks, terminal, monkeypatch, by):
    coloured = terminal(160, "list", "--dead")
    assert f"{COLOUR}31mdead" in coloured
    assert f"{COLOUR}1mID" in coloured

    options = ["--no-color"] if by == "option" else []
    if by == "environment":
        monkeypatch.setenv("NO_COLOR", "1")
    if by == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    if by == "no rich":
        monkeypatch.setitem(sys.modules, "rich", None)
    plain = terminal(160, "list", "--dead", options=options)

    assert COLOUR not in plain
    assert lines_of(plain) == lines_of(coloured)


def test_a_pipe_gets_no_colours_and_whole_rows(tasks, printed, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = printed("list", "--dead")
    assert len(lines) == 2
    assert all(map(printable, lines))
    assert lines[1].endswith("wrong kind of value")


@pytest.mark.parametrize("line", [
    ["cancel", "--tag", "x", "--yes"], ["reschedule", "--tag", "x", "--yes", "by:+1h"],
    ["run-now", "--tag", "x", "--yes"], ["retry", "--dead", "--yes"],
    ["remove", "--dead", "--yes"], ["release", "--tag", "x", "--yes"],
], ids=" ".join)  # fmt: skip
def test_a_command_shows_its_progress_while_it_runs(impatient, terminal, line):
    shown = terminal(80, *line)
    assert f"{line[0].partition('-')[0]} " in shown
    assert "\x1b[?25l" in shown  # the cursor is hidden meanwhile
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


@pytest.mark.usefixtures("sigint")
def test_ctrl_c_leaves_a_whole_terminal_and_says_how_far_it_came(impatient, terminal, between):
    def press():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return CUT

    between.before("cancel", press)
    *_, last = lines_of(terminal(80, "cancel", "--tag", "x", "--yes").rpartition("\x1b[?25h")[2])
    assert last.endswith("interrupted: at least 0 tasks cancelled")


@pytest.fixture
def impatient(app, tasks, limits):
    """Show progress at once."""
    limits(progress_s=0.0)


def test_a_quick_command_shows_no_progress(app, tasks, terminal):
    assert terminal(80, "cancel", "--tag", "x", "--yes") == "3 tasks cancelled\n"


def test_progress_is_for_a_terminal_only(impatient, run):
    assert run("cancel", "--tag", "x", "--yes").output == "3 tasks cancelled\n"


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", delayq.list_commands(None))
def test_help_fits_and_has_an_example(terminal, name, columns):
    usage, _, rest = terminal(columns, name, "--help").partition("  Example")
    examples, _, text = rest.partition("\n\n")

    assert usage.startswith("Usage: ")
    assert max(map(len, text.splitlines())) <= columns
    lines = [line.strip() for line in examples.splitlines()[1:]]
    assert lines
    assert all(line.startswith(f"celery -A proj delayq {name}") for line in lines)
    assert max(map(len, lines), default=0) <= 78


@pytest.fixture
def told(delayq_app, url):
    """An app whose rules, history and undo have rows that are wider than a terminal."""
    pytest.importorskip("cronsim")
    app = delayq_app(url, timezone="Europe/Berlin", delayq_undo=(3600, 100), delayq_history=100)

    @app.task(name="shop.newsletter.send_weekly_digest")
    def digest(_):
        pass

    app.delayq.every("weekly-digest-of-the-shop", digest.s(1), "30 6 * * mon-fri", tz="Asia/Tokyo")
    with acting("alice@shop.example"):
        app.delayq.rule("weekly-digest-of-the-shop").edit("30 7 * * mon-fri")
    more = {"delayq_at": FAR, "queue": "newsletter"}
    for number in range(3):
        digest.apply_async(
            (number,), task_id=f"{UUID[:-1]}{number}", delayq_key=f"{number}" * 30, **more
        )
        digest.apply_async((number,), delayq_tags=["x"], **more)
    app.delayq.select(tag="x").cancel()
    app.delayq.cancel(UUID[:-1] + "0")
    return app


@pytest.mark.parametrize("name", ["rules", "history", "undo"])
def test_a_table_fits_80_columns_and_what_one_copies_is_whole(told, terminal, name):
    lines = lines_of(terminal(80, name, app=told))
    text = "\n".join(lines)

    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    if name == "rules":
        assert "weekly-digest-of-the-shop  " in text
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", text)
    elif name == "history":
        [bulk] = {event.bulk for event in told.delayq.history() if event.bulk}
        assert f"3 tasks: --bulk {bulk}" in text
        assert f"cancelled  {UUID[:8]}  " in text
    else:
        assert f"undo {UUID[:-1]}0" in text


def test_a_real_process_in_a_real_terminal(app, shop, monkeypatch):
    app.send_task("shop.remind", task_id=UUID, queue="mail", delayq_at=FAR)
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    one = Terminal(60)
    ends = dict.fromkeys(("stdin", "stdout", "stderr"), one.theirs)

    assert shop("list", env={"TERM": "xterm"}, **ends).wait(60) == 0
    shown = one.close()

    assert f"{COLOUR}1mID" in shown
    [row] = lines_of(shown)[1:]
    assert re.fullmatch(r"8b0ce8b4 +[\d,]+ d( \d+ h)?  shop\S+ +mail +scheduled", row)
    assert len(row) <= 60
