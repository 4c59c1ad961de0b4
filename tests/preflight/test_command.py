"""The command, in this process, and in a process of a new image beside a live store and worker."""

import json
import os
import subprocess
import sys

import pytest

from tests.app.support import FAR
from tests.cli.conftest import app, ended, no_workers, project, run, said
from tests.support.waiting import PATIENCE, eventually

__all__ = ["app", "no_workers", "project", "run", "said"]

pytestmark = pytest.mark.libraries

FACTS = [
    "task", "reason", "where", "level", "count", "first_due", "id", "sentence", "advice",
]  # fmt: skip


def test_nothing_is_found(said):
    assert said("preflight") == ["no problem: looked at 0 tasks and 0 rules"]
    assert said("preflight", "--json") == []


def test_a_table_and_what_to_do(app, run):
    for number in range(2):
        app.send_task("shop.gone", task_id=f"a{number}", delayq_at=FAR)

    *lines, last = ended(run("preflight"), 1).output.splitlines()

    assert lines[:2] == [
        "LEVEL  TASK       REASON        IN    COUNT  FIRST DUE (UTC)      ID",
        "error  shop.gone  unregistered  task      2  2100-01-01 00:00:00  a0",
    ]
    assert lines[3] == "shop.gone: this code has no task of this name"
    assert "celery -A proj delayq edit --task shop.gone --to-task NEW" in lines[4]
    assert last == "1 problem: looked at 2 tasks and 0 rules"


def test_json_has_an_object_on_each_line(app, run):
    app.send_task("shop.gone", task_id="a", delayq_at=FAR)
    [line] = ended(run("preflight", "--json"), 1).stdout.splitlines()
    facts = json.loads(line)
    assert [*facts] == FACTS
    assert facts["first_due"] == "2100-01-01T00:00:00+00:00"
    assert (facts["task"], facts["count"], facts["id"]) == ("shop.gone", 1, "a")


def test_a_name_from_outside_is_shown_on_one_line(app, run):
    app.send_task("shop\nmean\x1b[31m", delayq_at=FAR)
    output = ended(run("preflight"), 1).output
    assert "\x1b" not in output
    assert "shop\nmean" not in output


def test_modules_that_cannot_be_imported_are_told(app, run):
    app.conf.imports = ["shop_that_is_not_there"]
    output = ended(run("preflight"), 1).output
    assert "not all of the app's modules can be imported" in output
    assert "shop_that_is_not_there" in output


CODE = """\
from celery import Celery, Task
from celery_delayq import DelayQ

app = Celery("shop", broker={url!r}, broker_connection_retry_on_startup=True)
app.conf.imports = ["jobs"]
delayq = DelayQ(app)
"""
OLD = """\
from celery import group
from shop import app, delayq

@app.task(name="shop.remind")
def remind(order): ...

@app.task(name="shop.mail")
def mail(user): ...

@app.task(name="shop.stays")
def stays(order): ...
"""
# What a project says in the module that `-A` names, or in one that workers import.
EARLY = 'delayq.every("early", app.signature("shop.stays", (1,)), "0 9 * * *")\n'
NEW = """\
from shop import app, delayq

@app.task(name="shop.remember")
def remember(order): ...

@app.task(name="shop.mail")
def mail(user, language): ...

@app.task(name="shop.stays")
def stays(order, note=""): ...

delayq.every("daily", remember.s(1), "0 9 * * *")
"""


@pytest.fixture
def image(tmp_path, url):
    """Write a project: ``image("new", code)``; returns how a process is started in it."""

    def image(name, jobs, more=""):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "shop.py").write_text(CODE.format(url=url) + more, encoding="utf-8")
        (folder / "jobs.py").write_text(jobs, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return {"cwd": folder, "env": environment, "text": True}

    return image


def celery(started, *words):
    command = [sys.executable, "-m", "celery", "-A", "shop", *words]
    return subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False, **started)


SCHEDULES = """\
from jobs import *
for number in range(10):
    remind.s(number).delay_for(86_400)
    mail.s(number).delay_for(86_400)
    stays.s(number).delay_for(86_400)
"""


def test_a_new_image_is_compared_with_what_the_old_one_has_scheduled(image, redis):
    old, new = image("old", OLD), image("new", NEW, EARLY)
    subprocess.run([sys.executable, "-c", SCHEDULES], check=True, timeout=PATIENCE, **old)
    before = {key: redis.dump(key) for key in redis.keys("*")}

    fine, found = celery(old, "delayq", "preflight"), celery(new, "delayq", "preflight", "--json")

    assert (fine.returncode, fine.stdout) == (0, "no problem: looked at 30 tasks and 0 rules\n")
    assert found.returncode == 1, found.stderr
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert sorted((row["task"], row["reason"], row["count"]) for row in rows) == [
        ("shop.mail", "arguments", 10),
        ("shop.remind", "unregistered", 10),
    ]
    assert {key: redis.dump(key) for key in redis.keys("*")} == before


def if_it_says(ended):
    return ended if ended.stdout else None


def test_a_queue_that_no_living_worker_reads_is_a_warning(image, redis):
    old = image("old", OLD)
    schedule = "from jobs import *\nfor queue in ('mail', 'celery'):\n    "
    schedule += "remind.s(1).set(queue=queue).delay_for(86_400)\n"
    schedule += "(stays.si(1) | stays.si(2)).set(queue='mail').delay_for(86_400)\n"
    schedule += "group(stays.s(1), mail.s(2).set(queue='slow')).delay_for(86_400)\n"
    subprocess.run([sys.executable, "-c", schedule], check=True, timeout=PATIENCE, **old)
    command = [sys.executable, "-m", "celery", "-A", "shop", "worker", "-c1", "-P", "threads"]
    worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **old)
    try:
        found = eventually(lambda: if_it_says(celery(old, "delayq", "preflight", "--json")))
    finally:
        worker.terminate()
        worker.wait(PATIENCE)

    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert found.returncode == 0
    assert {(row["reason"], row["level"]) for row in rows} == {("queue", "warning")}
    told = {(row["task"], row["where"], row["sentence"].split()[-1]) for row in rows}
    assert {("shop.remind", "task", "mail"), ("shop.mail", "canvas", "slow")} <= told
    assert "celery" not in {queue for _, _, queue in told}
