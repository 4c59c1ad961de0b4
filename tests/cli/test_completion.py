"""Completion on Tab, as a shell asks for it: docs/reference/cli.md has the lines for each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from celery.bin.celery import celery

from tests.cli.conftest import MODULE
from tests.readme.document import page
from tests.support.terminal import Terminal
from tests.support.waiting import PATIENCE, eventually

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
