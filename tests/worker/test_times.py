"""Times that Celery reads: ours beside those that a worker without this package reads."""

import json
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from celery import Celery

from tests.support.apps import celery_state_kept
from tests.support.waiting import eventually
from tests.support.worker import WorkerProcess
from tests.worker.conftest import new_project

pytestmark = pytest.mark.libraries

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo")
# The hours that the clocks of New York and Berlin leave out, and those that come twice.
WALLS = ("2099-03-08T02:30", "2099-03-29T02:30", "2099-10-25T02:30", "2099-11-01T01:30")
# RabbitMQ refuses any message that expires in more than ten years.
SOON = datetime.now(timezone.utc).replace(microsecond=0, tzinfo=None) + timedelta(days=2)


@pytest.fixture(scope="module")
def plain(broker_conf, server, tmp_path_factory):
    """A worker without this package, in a zone of its own."""
    zone, expiries = {"timezone": "America/New_York"}, [SOON, *map(datetime.fromisoformat, WALLS)]
    if broker_conf:
        zone, expiries = {"timezone": "Asia/Tokyo", "enable_utc": False}, [SOON]
    with celery_state_kept():
        project = new_project(server, **broker_conf, result_backend=None)
        conf = project.plain_conf | zone
        worker = WorkerProcess(
            "tests.worker.reading", "-P", "solo",
            env={**project.env, "DELAYQ_TEST_CONF": json.dumps(conf)},
            log=tmp_path_factory.mktemp("reading") / "worker.log", plain=True,
        )  # fmt: skip
        worker.wait_ready()
        yield SimpleNamespace(
            conf=conf,
            where={**broker_conf, "task_default_queue": project.queue},
            read=lambda task_id: eventually(lambda: project.evidence.get(f"read:{task_id}")),
            expiries=expiries,
        )
        worker.kill()
        project.close()


def said(wall, zone):
    """A wall time in each form in which a call may have it."""
    aware = [wall.replace(tzinfo=ZoneInfo(zone), fold=fold) for fold in (0, 1)]
    return [wall, wall.isoformat(), *aware, *(one.isoformat() for one in aware)]


@pytest.mark.parametrize("zone", ZONES)
def test_a_captured_call_means_what_it_means_to_a_plain_worker(plain, make_project, zone):
    ours = make_project(**plain.where, result_backend=None, timezone=zone, delayq_capture_eta=True)
    etas = [one for wall in WALLS for one in said(datetime.fromisoformat(wall), zone)]
    expiries = [one for wall in plain.expiries for one in said(wall, zone)]
    calls = [{"eta": eta} for eta in etas]
    calls += [{"eta": etas[0], "expires": expires} for expires in expiries]

    with Celery("sender", set_as_current=False) as sender:
        sender.conf.update(plain.conf, timezone=zone)
        theirs = [sender.send_task("note", **call).id for call in calls]
    captured = [ours.app.send_task("note", **call).id for call in calls]
    due = [ours.delayq.get(one).due.timestamp() for one in captured]
    assert ours.delayq.select(all=True).run_now() == len(calls)
    eventually(lambda: ours.delayq.hand_over() == 0 and not ours.delayq.counts().scheduled)

    read = [json.loads(plain.read(one)) for one in theirs]
    assert due == [eta for eta, _ in read]
    assert [json.loads(plain.read(one)) for one in captured] == [[None, one] for _, one in read]
