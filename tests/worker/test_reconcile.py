"""A rule lets a real worker compare the store with rows, also after its Redis was emptied."""

import json
import os

import pytest

from celery_delayq import DelayQ
from celery_delayq.operations.health import health
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries

FAR = 4_102_444_800
MODULE = """
import json, os
from datetime import timedelta
from pathlib import Path

from celery import Celery
from celery_delayq import DelayQ

app = Celery("agreeing", broker=os.environ["REDIS"])
delayq = DelayQ(app)

@app.task
def remind(order):
    pass

@app.task
def agree():
    rows = json.loads(Path(os.environ["ROWS"]).read_text())
    delayq.reconcile(remind, rows, tag="order", remove=True, dry_run=False, most=100)

delayq.every("agree", agree.s(), timedelta(seconds=1))
delayq.every("agree daily", agree.s(), timedelta(days=1))
"""


@pytest.fixture
def write(tmp_path):
    """Write the rows, as the database would have them; a reader finds them whole."""

    def write(*numbers, due=FAR):
        rows = [[f"order:{number}", due, [number]] for number in numbers]
        (tmp_path / "new").write_text(json.dumps(rows))
        (tmp_path / "new").replace(tmp_path / "rows")

    return write


def test_a_rule_brings_back_what_a_flush_took_and_health_and_the_log_tell(
    write, start_redis, start_worker, make_app, tmp_path
):
    server = start_redis()
    (tmp_path / "agreeing.py").write_text(MODULE)
    write(1, 2, 3)
    env = {"REDIS": server.url(), "ROWS": str(tmp_path / "rows")}
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    worker = start_worker("agreeing", "-P", "threads", env={**env, "PYTHONPATH": path})
    delayq = DelayQ(make_app(server.url(), delayq_timeout=30))

    def waiting():
        return {task.key: task.due.timestamp() for task in delayq.select(tag="order")}

    eventually(lambda: waiting() == dict.fromkeys(["order:1", "order:2", "order:3"], FAR))
    write(2, 3, 4, due=FAR + 60)
    eventually(lambda: waiting() == dict.fromkeys(["order:2", "order:3", "order:4"], FAR + 60))
    eventually(lambda: health(delayq) == [])
    worker.wait_log(
        "delayq_remember is 1 h, less than twice the 1 d of the rule agree daily: a task that"
    )

    with server.client() as client:
        client.flushdb()

    eventually(lambda: waiting() == dict.fromkeys(["order:2", "order:3", "order:4"], FAR + 60))
    eventually(lambda: any("its Redis was emptied" in line for line in health(delayq)))
    delayq.close()
