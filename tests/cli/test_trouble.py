"""The commands among Celery's, and in a process; tests of each command are in operations/."""

import json
from pathlib import Path

import pytest
from celery import VERSION
from celery.bin.celery import celery
from click.testing import CliRunner

from tests.app.support import FAR
from tests.cli.conftest import MODULE
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.libraries


def test_the_worker_s_help_names_the_option_to_leave_the_scanner_out(app, project):
    project(app)
    result = CliRunner().invoke(celery, ["-A", MODULE, "worker", "--help"])
    assert "--no-delayq" in result.output


def test_an_unknown_command_is_an_error_of_usage(run):
    assert run("explode").exit_code == 2


def test_an_unknown_level_of_logging_is_an_error_of_usage(run):
    result = run("scan", "-l", "NOPE")
    assert result.exit_code == 2
    assert "'NOPE' is not one of" in result.output


def schedule(app, number):
    items = [((), {}, FAR, f"{one}" * 20) for one in range(number)]
    assert app.delayq.schedule_many(app.signature("shop.remind", delayq_tags=["x"]), items)


def test_a_real_process_reads_and_changes_what_another_one_scheduled(shop, app):
    app.send_task("shop.remind", (42,), task_id="one", delayq_at=FAR)

    def ended(*words):
        process = shop(*words)
        return *process.communicate(timeout=4 * PATIENCE), process.returncode

    listed, *_ = ended("list", "--json")
    moved, _, status = ended("reschedule", "one", "+2h")
    assert json.loads(listed)["task"] == "shop.remind"
    assert (status, moved.startswith("task one rescheduled")) == (0, True)
    # Errors go to standard error, so a pipe gets only the changes.
    cancelled, error, status = ended("cancel", "one", "two")
    assert (cancelled, status) == ("task one cancelled\n", 1)
    assert "task two is not scheduled" in error


@pytest.mark.parametrize("line", ["list", "list -n 1", "list --json", "check"])
def test_a_full_disk_is_a_sentence(shop, app, line):
    schedule(app, 300)
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        process = shop(*line.split(), stdout=full)
        _, error = process.communicate(timeout=4 * PATIENCE)
    assert error == "Error: the output cannot be written: No space left on device\n"
    assert process.returncode == 1


@pytest.mark.parametrize(
    "line", ["list -n 5000", "list --json", "list --ids", "list --tag x --ids"]
)
def test_a_closed_pipe_ends_it_and_it_says_nothing(app, shop, line):
    schedule(app, 5000)

    lister = shop(*line.split())
    lister.stdout.readline()
    lister.stdout.close()

    assert lister.stderr.read() == ""
    lister.stderr.close()
    lister.wait(60)


def test_a_terminal_that_knows_fewer_characters_gets_escapes(app, shop):
    app.send_task("日本", task_id="süß", delayq_at=FAR)
    latin = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    out, error = shop("list", env=latin, encoding="latin-1").communicate(timeout=60)
    assert error == ""
    assert out.splitlines()[1].endswith("\\u65e5\\u672c          celery  scheduled")


@pytest.mark.skipif(VERSION < (5, 5), reason="its command keeps the app, not its name")
def test_advice_names_the_app_as_the_command_did(app, run, monkeypatch):
    monkeypatch.setattr("tests.cli.conftest.MODULE", "shop")
    app.send_task("t", task_id="here", delayq_at=FAR)
    for line in (["status"], ["health"], ["doctor"], ["show", "here"], ["show", "gone"]):
        said = run(*line).output
        assert "celery -A shop delayq" in said, line
        assert "-A proj" not in said, line
