"""The console output in the docs is the real output, but for ids, times and hosts."""

import os
import re
import shlex
import subprocess

import pytest
from celery.bin.celery import celery
from celery.bin.worker import worker
from click.testing import CliRunner

from celery_delayq.operations.cli import delayq
from tests.operations.table import LINES
from tests.readme.document import DOCUMENTS, page, written_in
from tests.readme.shape import shape

CLI = page("reference/cli")
KNOWN = (
    *("worker", "control", "revoke", "purge", "inspect", "scheduled", "delayq"),
    *delayq.list_commands(None),
)
CALL = re.compile(r"(?:^\$? ?|`)(celery (?!as|and)[^`#\n…]*\w)", re.MULTILINE)


def said_by(command, environment, cwd):
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout, done.returncode


@pytest.fixture
def run(shop, monkeypatch):
    """Run a command of the project in this process: its output, and its exit status."""
    # Celery never removes an app's options from this list, as it expects one app in a process.
    monkeypatch.setattr(worker, "params", list(worker.params))

    def run(command):
        words = ["-A", "shop", *shlex.split(command)]
        done = CliRunner().invoke(celery, words, prog_name="celery")
        return done.output, done.exit_code

    return run


def steps(block):
    """Each command of a transcript, with its output in the document."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def commands():
    """Every celery command in the documents, with or without its output."""
    calls = {call for document in DOCUMENTS.values() for call in CALL.findall(document.text)}
    return sorted({each for call in calls for each in call.split(" | ")})


@pytest.mark.parametrize("block", written_in("console"), ids=lambda block: block.document)
def test_the_transcript_is_what_one_sees(shop, environment, shop_file, block):
    shop.remind.s(42).set(task_id="order-42", queue="mail").delay_until("2030-01-01T09:00:00Z")
    shop.remind.s(43).set(task_id="order-43").delay_until("2030-01-01T09:30:00Z")

    for command, shown in steps(block):
        said, _ = said_by(command, environment, shop_file)
        assert shape(said) == shape(shown), command


def test_there_are_transcripts():
    assert CLI.written_in("console")


def test_the_exit_status_is_1_when_an_id_is_not_scheduled(shop, run):
    shop.remind.s(42).set(task_id="order-42").delay_for(1800)

    for command, status in (
        ("cancel order-42 order-44", 1),
        ("show order-42", 1),
        ("reschedule order-42 +5m", 1),
        ("status", 0),
    ):
        _, given = run(f"delayq {command}")
        assert given == status, command


@pytest.mark.parametrize("line", [line for line in LINES if "--json" in line])
def test_the_reading_commands_print_json(shop, run, line):
    shop.remind.s(42).set(task_id="order-42").delay_for(1800)

    said, status = run(f"delayq {line.format(id='order-42')}")

    # These print a line for each finding or event; here there is none.
    assert said.startswith("{") or (
        line.startswith(("check", "history", "rules", "undo")),
        said,
        status,
    ) == (
        True,
        "",
        0,
    )


@pytest.mark.parametrize("command", commands())
def test_a_command_and_its_options_exist(run, command):
    words = command.removeprefix("celery ").removeprefix("-A shop ").split()
    path = [word for word in words if word in KNOWN]
    said, status = run(f"{' '.join(path)} --help")
    said += run("delayq --help")[0]  # options that come before the command

    assert (status, path[:1]) == (0, words[:1])
    assert said.startswith("Usage: celery")
    assert [word for word in words if word.startswith("--") and word not in said] == []


def test_every_option_that_the_page_names_is_one(run):
    named = set(re.findall(r"`(?:\w+ )?(--[\w-]+)`", CLI.text)) - {"--no-delayq"}
    assert len(named) >= 5
    commands = ("list", "cancel", "edit", "resume", "check", "doctor")
    helps = [run(f"delayq {command} --help")[0] for command in commands]

    assert [option for option in named if option not in "".join(helps)] == []


def test_every_way_to_give_a_time_that_the_page_names_is_taken(shop, run):
    named = re.findall(r"`((?:by:[+-]|\+)\d[\dsmhd]+)`", CLI.text)
    assert len(named) == 5
    shop.remind.s(42).set(task_id="order-42").delay_for(1800)

    for when in [*named, "2030-01-01T09:00:00Z"]:
        said, _ = run(f"delayq reschedule order-42 {when}")
        assert re.fullmatch(r"task order-42 rescheduled to [\d-]+ [\d:.]+ UTC\n", said)
