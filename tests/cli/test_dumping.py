"""``celery delayq dump`` and ``load``: from one store into another, through a pipe or a file."""

import json

import pytest
from celery.bin.celery import celery
from click.testing import CliRunner

from celery_delayq.core.store.changes import Removal
from tests.app.support import FAR, LONG_AGO
from tests.cli.conftest import MODULE
from tests.operations.test_cli import HOSTILE, printable
from tests.support.network import AWAY
from tests.support.places import at

MOVING = "this store is not paused: tasks that come or go now may or may not be in the dump"
LEAVING = (
    "this store is not paused: it remembers tasks that leave it only as long as delayq_remember "
    "says; then loading the same dump again may bring them back; pass --paused to prevent that"
)
OWED = "REVOKED is not stored yet for 1; this store's scanners do that, the dump does not have it"

GONE = "NOREPLICAS Not enough good replicas to write."


@pytest.fixture
def other(delayq_app, url):
    return delayq_app(url, delayq_prefix="other")


@pytest.fixture
def dumped(printed):
    return lambda: "".join(f"{line}\n" for line in printed("dump"))


@pytest.fixture
def one(app):
    """A task that waits."""
    app.send_task("t", task_id="a", delayq_at=FAR)


def test_a_dump_of_a_store_that_is_not_paused_comes_with_a_warning(one, run):
    result = run("dump")
    assert result.stderr == f"{MOVING}\n"
    kinds = [json.loads(line)["kind"] for line in result.stdout.splitlines()]
    assert kinds == ["dump", "task", "end"]


def test_in_flight_tasks_and_owed_results_are_reported(delayq_app, redis, redis_server, run, url):
    relayed = delayq_app(url, url, delayq_url=redis_server.url(7))
    at(relayed.delayq, "leased")
    relayed.send_task("t", task_id="b", delayq_at=FAR)
    # The process that cancelled it died before it stored REVOKED.
    relayed.delayq.services.entries.change("b", Removal("caller"))
    relayed.delayq.pause(all=True)

    result = run("dump", app=relayed)

    assert result.stderr.splitlines() == [
        "1 task being published: dumped as possibly delivered",
        OWED,
    ]


def test_a_dump_of_a_paused_store_says_if_the_counts_differ(app, run, redis):
    for number in range(3):
        app.send_task("t", task_id=str(number), delayq_at=FAR)
    app.delayq.pause(all=True)
    assert run("dump").stderr == ""

    for due in redis.keys("*:due"):
        redis.zremrangebyrank(due, 0, 0)

    result = run("dump")
    assert result.stderr == (
        "3 tasks dumped, but the store counts 2 now: a process still schedules, cancels or "
        "publishes, or the store is inconsistent; run check\n"
    )
    assert (result.exit_code, json.loads(result.stdout.splitlines()[-1])["tasks"]) == (0, 3)


def test_a_count_that_fails_takes_nothing_off_the_dump(app, one, run, between):
    app.delayq.pause(all=True)
    between.before("counts", lambda: AWAY if between.asked["counts"] > 1 else None)
    result = run("dump")

    assert json.loads(result.stdout.splitlines()[-1])["kind"] == "end"
    failed = f"could not compare the dump with the store's counts: read failed: {GONE}\n"
    assert result.stderr == failed


def test_a_dump_waits_until_nothing_is_in_flight(delayq_app, redis_server, run, url, monkeypatch):
    relayed = delayq_app(url, delayq_url=redis_server.url(7), delayq_lease=30)
    [leased] = at(relayed.delayq, "leased")

    result = run("dump", "--wait", "0.3", app=relayed)
    assert result.exit_code == 1
    assert result.output == "Error: 1 task still being published; dumped nothing\n"

    def ack(_):
        for shard_steps in relayed.delayq.services.steps_by_shard():
            shard_steps.ack([leased])
            shard_steps.close()

    monkeypatch.setattr("celery_delayq.core.clock.sleep", ack)
    result = run("dump", "--wait", "60", app=relayed)
    assert (result.exit_code, json.loads(result.stdout.splitlines()[-1])["tasks"]) == (0, 0)


def test_dump_and_load_report_an_unreadable_task(app, other, redis, run):
    app.send_task("t", task_id="a\x1b[2J", delayq_at=FAR)
    app.delayq.pause(all=True)
    for records in redis.keys("*records"):
        redis.hset(records, "a\x1b[2J", b"? of another program")

    dump = run("dump")
    load = run("load", app=other, stdin=dump.stdout)

    assert dump.exit_code == 1
    assert dump.stderr == (
        "1 task unreadable, dumped as stored, and no load restores that; dump with the newest "
        "release that uses this store, and run check for details\n"
    )
    assert load.exit_code == 1
    assert load.output.splitlines() == [
        'task a\\x1b[2J was dumped as unreadable: record format "?" is unknown',
        "0 tasks loaded",
        "1 task not loaded",
    ]


@pytest.mark.parametrize("has_left", [False, True], ids=["waits", "left"])
def test_a_task_that_is_or_was_here_is_not_loaded_again(app, one, dumped, said, has_left):
    text, why = dumped(), "1 task here already"
    if has_left:
        why = "1 task left out: delivered or cancelled here since"
        app.delayq.cancel("a")
    assert said("load", stdin=text) == [LEAVING, "0 tasks loaded", why]


def test_another_task_of_an_id_is_an_error_or_left_out(one, other, dumped, refused, said):
    other.send_task("t", task_id="a", delayq_at=FAR)
    text = dumped()

    assert refused("load", app=other, stdin=text) == [
        LEAVING, "task 'a' was not loaded: another task has its id here",
        "0 tasks loaded", "1 task not loaded",
    ]  # fmt: skip
    assert said("load", "--skip-existing", app=other, stdin=text) == [
        LEAVING, "0 tasks loaded", "1 task left out: another task has the id or the key",
    ]  # fmt: skip


def test_a_load_can_pause_first_and_only_look(app, other, dumped, said):
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    text = dumped()

    assert said("load", "--dry-run", "--paused", app=other, stdin=text) == [
        "1 task can be read",
        "ids and keys were not compared with the tasks in this store",
    ]
    assert (other.delayq.counts().scheduled, other.delayq.pauses()) == (0, [])
    assert said("load", "--paused", app=other, stdin=text) == ["1 task loaded"]
    assert other.delayq.hand_over() == 0


@pytest.mark.parametrize(
    ("words", "queue", "said"),
    [
        ([], "mail", f"{LEAVING}\n"),
        ([], None, ""),
        (["--paused"], "mail", ""),
        (["--dry-run"], "mail", "ids and keys were not compared with the tasks in this store\n"),
    ],
)
def test_a_load_into_a_store_that_is_not_paused_warns(  # noqa: PLR0917
    one, dumped, other, run, words, queue, said
):
    other.delayq.pause(queue=queue, all=queue is None)
    result = run("load", *words, app=other, stdin=dumped())
    assert (result.exit_code, result.stderr) == (0, said)


def test_a_load_that_pauses_everything_prints_no_warning(app, one, other, dumped, run):
    app.delayq.pause(all=True)
    assert run("load", app=other, stdin=dumped()).stderr == ""


def test_a_load_warns_before_it_writes(between, one, other, dumped, run):
    text = dumped()
    between.before("load", lambda: AWAY)
    assert run("load", app=other, stdin=text).stderr.splitlines()[0] == LEAVING


@pytest.mark.usefixtures("one")
def test_a_cut_dump_is_an_error_that_says_how_far_it_came(app, other, dumped, refused):
    app.send_task("t", task_id="b", delayq_at=FAR)
    first, task, second, _ = dumped().splitlines(keepends=True)
    assert refused("load", app=other, stdin=first + task + second[:-50]) == [
        LEAVING, "1 task loaded so far",
        "Error: line 3 of the dump: it is no JSON object: it was cut or damaged",
    ]  # fmt: skip


@pytest.mark.usefixtures("on_a_terminal")
def test_a_load_from_a_terminal_says_what_it_wants(misused):
    assert misused("load") == "Error: Pass a dump on standard input: load < FILE"


def test_no_text_of_others_reaches_a_terminal(app, other, dumped, run):
    for number, text in enumerate(HOSTILE):
        app.send_task(text, (text,), task_id=f"{number}{text}", queue=text, delayq_at=FAR)
        app.delayq.pause(queue=f"{text}!")
        other.send_task("t", task_id=f"{number}{text}", delayq_at=FAR)
    text = dumped()
    result = run("load", app=other, stdin=text)

    assert all(printable(line) and line.isascii() for line in text.split("\n"))
    assert result.exit_code == 1
    assert all(printable(line) for line in result.output.split("\n")), ascii(result.output)


def test_no_wrong_text_of_a_line_reaches_a_terminal(other, dumped, refused):
    first, last = dumped().splitlines()
    for text in HOSTILE:
        for wrong in (
            {text: 1}, {"kind": text}, {"format": 2, "made_by": text}, {"store": [text]}
        ):  # fmt: skip
            line = json.dumps({**json.loads(first), **wrong})
            lines = refused("load", app=other, stdin=f"{line}\n{last}\n")

            assert all(map(printable, lines)), ascii(lines)
            assert lines[-1].startswith("Error: line 1 of the dump: ")


def test_a_load_reads_the_bytes_of_a_dump_that_is_not_ascii(app, other, project, dumped):
    app.send_task("t", ("ü",), task_id="ü", delayq_at=FAR)
    # As jq prints it, not in ASCII.
    lines = [json.dumps(json.loads(line), ensure_ascii=False) for line in dumped().splitlines()]
    project(other)

    words = ["-A", MODULE, "delayq", "load"]
    result = CliRunner().invoke(celery, words, input="\n".join(lines).encode())

    assert result.stdout == "1 task loaded\n"
    assert other.delayq.get("ü").args == ("ü",)


@pytest.fixture
def load(app, shop):
    """Start the command that loads into the other store."""
    conf = {"delayq_prefix": "other", "delayq_shards": app.conf.delayq_shards}
    return lambda **options: shop("load", conf=conf, **options)


def test_a_load_without_a_standard_input_says_what_it_wants(load):
    with load(before=["/bin/sh", "-c", 'exec "$@" <&-', "sh"]) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said.splitlines()[-1] == "Error: Pass a dump on standard input: load < FILE"
