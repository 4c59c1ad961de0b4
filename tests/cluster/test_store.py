"""A store in one slot of a Cluster works as in a single Redis; the broker is another Redis."""

import time

from celery_delayq import Outcome
from celery_delayq.contrib.care.doctor import examine
from tests.support.clusters import STORE

FAR = 4_102_444_800  # 2100-01-01


def test_a_task_is_scheduled_found_listed_moved_and_cancelled(house, cluster):
    delayq = house.delayq

    house.task.apply_async(task_id="a", delayq_at=FAR, delayq_key="k", delayq_tags=["t"])

    assert delayq.get("a").key == "k"
    assert [task.id for task in delayq.select(tag="t")] == ["a"]
    assert delayq.reschedule("a", FAR + 1) is Outcome.DONE
    assert delayq.cancel(key="k") is Outcome.DONE
    assert delayq.get("a") is None
    assert {one for one in cluster.masters if one.client().dbsize()} == {cluster.owner}


def test_a_due_task_reaches_the_other_broker(house):
    house.due_now(task_id="a")

    assert house.relay_once() == 1

    assert house.ids() == ["a"]


def test_a_scanner_is_woken_at_the_owner(house):
    house.delayq.app.conf.delayq_safety_interval = 60
    house.start().wait_for_first_scan(20)

    house.task.apply_async(task_id="a", delayq_at=time.time() + 0.2)

    assert [one.headers["id"] for one in house.take()] == ["a"]


def test_every_key_is_in_the_slot_of_the_tag(house, cluster):
    house.due_now(task_id="a", delayq_tags=["t"])
    house.task.apply_async(task_id="b", delayq_at=FAR, delayq_key="k")

    with cluster.owner.client() as client:
        keys = client.execute_command("DBSIZE")

    assert keys > 0
    assert cluster.owner.ask("COUNTKEYSINSLOT", STORE) == keys


def test_the_doctor_reads_the_store_and_finds_no_error(house):
    house.task.apply_async(delayq_at=FAR)

    found = {line.name: line for line in examine(house.delayq.services)}

    assert found["store"].level == "ok"
    assert house.delayq.services.endpoint.url in found["store"].found
    # No scanner runs, and the suite's servers have no persistence.
    assert {name for name, line in found.items() if line.level == "error"} <= {
        "scanners",
        "persistence",
    }


def test_check_finds_nothing_wrong(house):
    house.due_now(task_id="a")

    assert list(house.delayq.check()) == []
