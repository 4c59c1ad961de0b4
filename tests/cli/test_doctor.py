"""`delayq doctor`: a line for each requirement, with the advice, and the exit status."""

import json
import math
import re

import pytest
from kombu.transport import TRANSPORT_ALIASES

from celery_delayq.contrib.care import commands as command
from celery_delayq.contrib.care import doctor
from celery_delayq.contrib.care.doctor import (
    AT_THE_BROKER,
    AT_THE_STORE,
    Patient,
    Question,
    examine,
)
from celery_delayq.core.servers.risks import Line
from celery_delayq.errors import StoreUnavailable
from celery_delayq.operations.cli.output import text_of
from tests.app.support import FAR
from tests.support.ports import free_port

pytestmark = [pytest.mark.libraries, pytest.mark.usefixtures("patient_doctor")]

NAMES = [
    *("store", "replication", "eviction", "persistence", "memory", "rights", "round trip", "clock"),
    *("other stores", "agreement", "beginning", "scanners", "overdue", "refused", "dead"),
    *("pauses", "format", "broker", "workers"),
]
KEPT = ("--appendonly", "yes")


@pytest.fixture
def well(start_redis, delayq_app, limits):
    """An app whose store's Redis is set up as it should be."""
    limits(doctor_slow_ms=math.inf)  # a busy machine is slow
    return delayq_app(start_redis(*KEPT).url())


# The command.


def test_each_thing_is_a_line_and_what_to_do_stands_below(well, alive, run):
    alive(well)

    result = run("doctor", app=well)

    lines = result.output.splitlines()
    assert [line[9:28].rstrip() for line in lines[:-1]] == NAMES
    assert {line[:9] for line in lines[:-2]} == {"ok       "}
    said, advice = lines[-2:]
    assert said.startswith("warning  workers            no worker answers, so their queues and ")
    assert advice == " " * 28 + (
        "-> start a worker; with the solo pool, one answers only between tasks"
    )
    assert result.exit_code == 0


def test_an_error_is_status_1_and_says_what_to_do(well, run):
    result = run("doctor", app=well)
    assert result.exit_code == 1
    assert (
        "\nerror    scanners           no scanner is alive: no tasks are delivered\n"
        f"{' ' * 28}-> start a worker, or: celery -A proj delayq scan\n"
    ) in result.output


def test_json_is_an_object_a_line(well, run):
    result = run("doctor", "--json", app=well)

    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["name"] for one in found] == NAMES
    assert all([*one] == ["name", "level", "found", "advice"] for one in found)
    assert {one["level"] for one in found} == {"ok", "warning", "error"}
    assert [bool(one["advice"]) for one in found] == [one["level"] != "ok" for one in found]
    assert result.exit_code == 1


def test_the_doctor_takes_a_moment_and_leaves_nothing(well):
    client = well.delayq.services.connect()

    def ask(*words):
        return client.execute("it", [b"$%d\r\n%s\r\n" % (len(word), word) for word in words])

    def calls():  # those from scripts are counted as well
        stats = ask(b"INFO", b"stats").decode()
        return int(re.search(r"total_commands_processed:(\d+)", stats)[1])

    well.send_task("t", delayq_at=FAR)
    scripts = well.delayq.services.scripts[0]
    before, made = {*ask(b"KEYS", b"*")}, calls()

    patient = Patient(well.delayq.services)
    for question in AT_THE_STORE:
        assert [*question.lines(patient)] or question.name == "wait for replicas"
    patient.close()

    assert calls() - made < 250
    assert before == {*ask(b"KEYS", b"*")}
    assert b"{delayq:0}:records" in before
    assert scripts is well.delayq.services.scripts[0]
    client.close()


def test_levels_have_colours():
    shown = [next(command._shown(Line("a", level, "b"), None)) for level in command._STYLES]
    assert [line[0] for line in shown] == [
        ("ok       ", "green"),
        ("warning  ", "yellow"),
        ("error    ", "red"),
    ]


def shown(line, width=None):
    return [text_of(part) for part in command._shown(line, width)]


def test_a_line_with_control_characters_is_shown_as_plain_text():
    lines = shown(Line("a", "error", "one\n\x1b[31mtwo", "do\rthis"))
    assert [line[28:] for line in lines] == [r"one\n\x1b[31mtwo", r"-> do\rthis"]


@pytest.mark.parametrize("width", [80, 120])
def test_texts_are_wrapped_beside_their_names_on_a_terminal(width):
    found, advice = "some long words " * 20, "do this, and --that-as-well " * 9
    lines = shown(Line("persistence", "warning", found, advice), width)

    assert len(lines) > 5
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("warning  persistence        some long words")
    assert {line[:28] for line in lines[1:]} == {" " * 28}
    assert " ".join(line[28:] for line in lines) == f"{found}-> {advice}".rstrip()


def test_texts_are_not_cut_on_a_very_narrow_terminal():
    lines = shown(Line("a", "ok", "word " * 30), 20)
    assert max(map(len, lines)) <= 28 + 40
    assert len(lines) > 3


# The store.


def test_a_store_that_is_away_is_an_error_and_the_broker_is_looked_at(
    delayq_app, redis_server, redis, run
):
    url = f"redis://127.0.0.1:{free_port()}/0"
    result = run("doctor", app=delayq_app(redis_server.url(), delayq_url=url))

    lines = result.output.splitlines()
    assert result.exit_code == 1
    assert lines[0].startswith(
        f"error    store              the store {url} cannot be reached, so nothing can be "
        "scheduled or delivered: "
    )
    assert lines[1].startswith(" " * 28 + "-> check that it runs, and that the URL in delayq_")
    assert [line[:28].split(maxsplit=1) for line in lines[2:3]] == [["ok", "broker             "]]


def test_a_wrong_password_is_one_that_is_away(as_user, delayq_app, redis_server):
    as_user("+@all")
    line = next(examine(delayq_app(redis_server.url().replace("//", "//u:x@")).delayq.services))
    assert (line.name, line.level) == ("store", "error")
    assert "username-password" in line.found


@pytest.mark.parametrize(
    ("broker_url", "shown"),
    [("nosuch://here", "nosuch://here"), ("amqp://u:s3cr3tx/y@127.0.0.1//", "amqp://127.0.0.1//")],
)
def test_a_broker_url_of_no_use_is_one_error_without_its_password(
    broker_url, shown, delayq_app, run
):
    app = delayq_app(broker_url, delayq_url="redis://127.0.0.1:1/0")
    result = run("doctor", app=app)
    assert result.output.startswith(f"Error: broker_url is {shown!r}; expected a URL ")
    assert "s3cr3tx" not in result.output
    assert len(result.output.splitlines()) == 1
    assert result.exit_code == 1


def test_a_transport_that_cannot_be_loaded_is_one_error(delayq_app, run, monkeypatch):
    monkeypatch.setitem(TRANSPORT_ALIASES, "unloadable", "tests.cli.no_transport:Transport")
    app = delayq_app("unloadable://here", delayq_url="redis://127.0.0.1:1/0")

    result = run("doctor", app=app)

    said = "its transport cannot be loaded: No module named 'tests.cli.no_transport'"
    assert said in result.output
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.endswith(f"{command.RUNBOOK}\n")
    assert result.exit_code == 1


def test_a_broker_that_the_user_may_not_push_to_is_not_reported_as_ok(as_user):
    app = as_user("+@all", "resetkeys", "~{delayq:*}:*", "~*.pidbox", "~_kombu.*")
    found = [(line.name, line.level) for line in examine(app.delayq.services)]
    assert ("rights", "error") in found
    assert "broker" not in dict(found)


def test_a_store_that_dies_meanwhile_is_asked_nothing_more(start_redis, delayq_app, monkeypatch):
    server = start_redis()
    app = delayq_app(server.url())

    def look(_):
        server.kill()
        raise StoreUnavailable("doctor", "it died")
        yield

    first = Question("first", "the first thing", look)
    monkeypatch.setattr(doctor, "AT_THE_STORE", (first, *AT_THE_STORE))
    [line] = examine(app.delayq.services)

    assert (line.name, line.level) == ("store", "error")


@pytest.mark.parametrize("line", ["store", "rights"])
def test_a_store_that_fails_on_the_way_is_not_called_a_broker_that_is_well(app, line):
    patient = Patient(app.delayq.services)
    question, *_ = AT_THE_BROKER
    assert [one.level for one in question.lines(patient)] == ["ok"]
    patient.wrong.add(line)
    assert list(question.lines(patient)) == []
    patient.close()


# The room for what `delayq_remember` keeps.

REMEMBERED = Line(
    "memory",
    "warning",
    "with this delayq_remember, 2,000,000 tasks that left may take 240.0 MB, more than this Redis "
    "has: 239.0 MB; when it is full, nothing can be scheduled",
    "set a smaller number of tasks, or raise maxmemory",
)


@pytest.mark.parametrize(
    ("megabytes", "shards", "warned"),
    [(239, 1, [REMEMBERED]), (239, 3, [REMEMBERED]), (240, 1, []), (0, 1, [])],
)
def test_remembered_tasks_of_all_shards_that_may_fill_redis_are_warned_of(
    start_redis, delayq_app, megabytes, shards, warned
):
    url = start_redis("--maxmemory", f"{megabytes * 1_000_000}").url()
    found = examine(delayq_app(url, delayq_shards=shards).delayq.services)
    assert [line for line in found if "delayq_remember" in line.found] == warned
