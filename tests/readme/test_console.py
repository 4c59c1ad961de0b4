"""What the READMEs show of the command line is what one sees, but for ids, times and hosts."""

import os
import re
import subprocess

import pytest

from tests.readme.document import DOCUMENTS, README, written_in
from tests.readme.shape import shape

SECTION = "Command line"
KNOWN = (
    *("worker", "control", "revoke"),
    *("delayq", "list", "show", "status", "cancel", "reschedule", "scan", "bench"),
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


def steps(block):
    """Each command of a transcript, with what the README shows for it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def commands():
    """Every call of celery in the READMEs, whether its output is shown or not."""
    return sorted({call for document in DOCUMENTS.values() for call in CALL.findall(document.text)})


@pytest.mark.parametrize("block", written_in("console"), ids=lambda block: block.document)
def test_the_transcript_is_what_one_sees(shop, environment, shop_file, block):
    shop.remind.s(42).set(task_id="order-42", queue="mail").delay_until("2030-01-01T09:00:00Z")
    shop.remind.s(43).set(task_id="order-43").delay_until("2030-01-01T09:30:00Z")

    for command, shown in steps(block):
        said, _ = said_by(command, environment, shop_file)
        assert shape(said) == shape(shown), command


def test_there_are_transcripts():
    assert README.written_in("console", SECTION)


def test_the_exit_status_is_1_when_an_id_is_not_scheduled(shop, environment, shop_file):
    shop.remind.s(42).set(task_id="order-42").delay_for(1800)

    for command, status in (
        ("cancel order-42 order-44", 1),
        ("show order-42", 1),
        ("reschedule order-42 +5m", 1),
        ("status", 0),
    ):
        _, given = said_by(f"celery -A shop delayq {command}", environment, shop_file)
        assert given == status, command


@pytest.mark.parametrize("command", ["list", "show order-42", "status"])
def test_the_reading_commands_print_json(shop, environment, shop_file, command):
    shop.remind.s(42).set(task_id="order-42").delay_for(1800)

    said, _ = said_by(f"celery -A shop delayq {command} --json", environment, shop_file)

    assert said.startswith("{")


@pytest.mark.parametrize("command", commands())
def test_a_command_and_its_options_exist(environment, shop_file, command):
    words = command.removeprefix("celery ").removeprefix("-A shop ").split()
    path = [word for word in words if word in KNOWN]
    said, status = said_by(f"celery -A shop {' '.join(path)} --help", environment, shop_file)

    assert (status, path[:1]) == (0, words[:1])
    assert said.startswith("Usage: celery")
    assert [word for word in words if word.startswith("--") and word not in said] == []


def test_every_option_that_the_section_names_is_one(environment, shop_file):
    named = set(re.findall(r"`(?:\w+ )?(--[\w-]+)`", README.parts(SECTION)))
    assert len(named) >= 5
    helps = [
        said_by(f"celery -A shop delayq {command} --help", environment, shop_file)[0]
        for command in ("list", "cancel")
    ]

    assert [option for option in named if option not in "".join(helps)] == []


def test_every_way_to_give_a_time_that_the_readme_names_is_taken(shop, environment, shop_file):
    named = re.findall(r"`(\+\d+[smhd])`", README.parts(SECTION))
    assert len(named) == 4
    shop.remind.s(42).set(task_id="order-42").delay_for(1800)

    for when in [*named, "2030-01-01T09:00:00Z"]:
        said, _ = said_by(
            f"celery -A shop delayq reschedule order-42 {when}", environment, shop_file
        )
        assert said == "task order-42 rescheduled\n"
