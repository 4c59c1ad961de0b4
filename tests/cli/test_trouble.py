"""The commands among Celery's, and in a process; tests of each command are in operations/."""

import json
import os
import subprocess
import sys
import textwrap
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


@pytest.mark.parametrize("number", [2**63, 10**30])
def test_any_limit_may_be_given(app, said, number):
    app.send_task("t", task_id="one", delayq_at=FAR)

    assert len(said("list", "--limit", str(number))) == 2


@pytest.fixture
def shop(tmp_path, url):
    """A project on disk, as a user has it; runs ``celery -A shop delayq …`` in a process."""
    (tmp_path / "shop.py").write_text(
        textwrap.dedent(
            f"""
            from celery import Celery
            from celery_delayq import DelayQ

            app = Celery("shop", broker={url!r})
            app.conf.delayq_timeout = {PATIENCE}
            delayq = DelayQ(app)

            @app.task
            def remind(order):
                return order
            """
        ),
        encoding="utf-8",
    )

    def run(*arguments, stdout=subprocess.PIPE):
        return subprocess.run(
            [sys.executable, "-m", "celery", "-A", "shop", "delayq", *arguments],
            cwd=tmp_path,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=4 * PATIENCE,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        )

    return run


def test_a_real_process_reads_and_changes_what_another_one_scheduled(shop, app):
    app.send_task("shop.remind", (42,), task_id="one", delayq_at=FAR)

    listed = shop("list", "--json")
    moved = shop("reschedule", "one", "+2h")
    cancelled = shop("cancel", "one", "two")

    assert json.loads(listed.stdout)["task"] == "shop.remind"
    assert (moved.returncode, moved.stdout.startswith("task one rescheduled")) == (0, True)
    assert cancelled.returncode == 1
    assert cancelled.stdout == "task one cancelled\n"
    # Errors go to standard error, so a pipe gets only the changes.
    assert "task two is not scheduled" in cancelled.stderr


@pytest.mark.parametrize("line", [["list"], ["list", "-n", "1"], ["list", "--json"], ["check"]])
def test_a_full_disk_is_a_sentence(shop, app, line):
    items = [((), {}, FAR, f"{number}" * 20) for number in range(300)]
    assert app.delayq.schedule_many(app.signature("shop.remind"), items)

    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = shop(*line, stdout=full)

    assert done.stderr == "Error: the output cannot be written: No space left on device\n"
    assert done.returncode == 1


def test_a_closed_pipe_ends_the_list_without_a_traceback(shop, app, tmp_path):
    items = [((), {}, FAR, f"{number}" * 20) for number in range(3000)]
    assert app.delayq.schedule_many(app.signature("shop.remind"), items)

    command = [sys.executable, "-m", "celery", "-A", "shop", "delayq", "list", "-n", "5000"]
    lister = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )  # fmt: skip
    lister.stdout.readline()
    lister.stdout.close()

    assert "Traceback" not in lister.stderr.read()
    lister.stderr.close()
    lister.wait(60)


@pytest.mark.skipif(VERSION < (5, 5), reason="its command keeps the app, not its name")
def test_advice_names_the_app_as_the_command_did(app, run, monkeypatch):
    monkeypatch.setattr("tests.cli.conftest.MODULE", "shop")
    app.send_task("t", task_id="here", delayq_at=FAR)

    for line in (["status"], ["health"], ["doctor"], ["show", "here"], ["show", "gone"]):
        said = run(*line).output
        assert "celery -A shop delayq" in said, line
        assert "-A proj" not in said, line
