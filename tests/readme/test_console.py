"""The console output in the docs is the real output, but for ids, times and hosts."""

import contextlib
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


def test_the_pages_have_transcripts():
    assert CLI.written_in("console")


@pytest.mark.parametrize("line", [line for line in LINES if "--json" in line])
def test_the_reading_commands_print_json(shop, run, line):
    shop.remind.s(42).set(task_id="order-42").delay_for(1800)

    said, status = run(f"delayq {line.format(id='order-42')}")

    # These print a line for each finding, event or key; here there is none.
    assert said.startswith("{") or (
        line.startswith(("check", "history", "keys", "preflight", "rules", "undo")),
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
    helps = [run(f"delayq {command} --help")[0] for command in delayq.list_commands(None)]

    assert [option for option in named if option not in "".join(helps)] == []


def test_every_way_to_give_a_time_that_the_page_names_is_taken(shop, run):
    named = re.findall(r"`((?:by:[+-]|\+)\d[\dsmhd]+)`", page("guide/times").text)
    assert len(named) == 4
    shop.remind.s(42).set(task_id="order-42").delay_for(1800)

    for when in [*named, "2030-01-01T09:00:00Z"]:
        said, _ = run(f"delayq reschedule order-42 {when}")
        assert re.fullmatch(r"task order-42 rescheduled to [\d-]+ [\d:.]+ UTC\n", said)


# The doctor and the repair, on pages of their own.

WATCHING = page("operate/watching")
DOCTOR = "celery -A shop delayq doctor"
SET_UP = ("--save", "3600", "1", "--maxmemory", "1gb")  # like the Redis of the example


@pytest.fixture
def on_its_redis(environment, start_redis, redis_server):
    """The environment of a process whose Redis is set up like the example's."""
    server = start_redis(*SET_UP, binary=redis_server.binary)
    return {**environment, "CELERY_BROKER_URL": server.url()}


def without_facts(text):
    """Each line without its figures, the server's name and product, and whether that is slow."""
    text = re.sub(r"redis://[\w.:]+/", "redis://red/", text).replace("Valkey", "Redis")
    text = re.sub(r"warning  (round trip .* calls):.*\n +-> .*", r"ok       \1", text)
    return [re.sub(r"\d[\d.,]*( [kMG]B)?", "0", line) for line in text.splitlines()]


def test_the_doctor_prints_the_lines_on_its_page_in_their_order(on_its_redis, shop_file):
    [shown] = WATCHING.written_in("text")

    said, status = said_by(DOCTOR, on_its_redis, shop_file)

    printed = iter(without_facts(said))
    assert [line for line in without_facts(shown.text) if line not in printed] == []
    assert status == 1


def test_each_line_of_the_doctor_is_explained(on_its_redis, shop_file):
    said, _ = said_by(DOCTOR, on_its_redis, shop_file)
    names = {line[9:28].strip() for line in said.splitlines()[:-1] if line[:1] != " "}

    explained = {*re.findall(r"^- \*\*(.*?)\*\*", WATCHING.parts("The lines"), re.MULTILINE)}
    explained |= {*re.findall(r"in a line `(\w+)`", WATCHING.text)}

    assert names <= explained
    assert explained - names == {
        "wait for replicas",
        "disk",
        "queues",
        "rules",
        "keys",
        "unknown",
        "reconcile",
    }


def test_the_repair_prints_the_text_on_its_page_but_for_the_typed_answer(
    redis_server, shop, environment, shop_file
):
    shop.remind.s(42).set(task_id="order-42").delay_until("2030-01-01T09:00:00Z")
    with contextlib.closing(redis_server.client()) as redis:
        redis.delete("{delayq:0}:due")
        redis.zadd("{delayq:0}:tags", {b"user:7\0......order-43": 0})

    [shown] = page("operate/moving").written_in("text")
    said, status = said_by("celery -A shop delayq check --repair --yes", environment, shop_file)

    asked = "repair 2 findings? [y/N]: y\n"
    assert asked in shown.text
    assert (said, status) == (shown.text.replace(asked, ""), 0)
    assert shop.delayq.get("order-42").state == "SCHEDULED"
