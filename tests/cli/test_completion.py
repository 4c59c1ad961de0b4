"""Completion on Tab, as a shell asks for it: docs/reference/cli.md has the lines for each."""

import pytest
from celery.bin.celery import celery

from tests.cli.conftest import MODULE

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
