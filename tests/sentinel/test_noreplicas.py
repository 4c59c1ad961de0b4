"""A master that lost its replicas refuses writes: no task is treated as faulty."""

import json
import logging

import pytest

from celery_delayq.errors import StoreUnavailable
from tests.sentinel.work import FAR, QUEUE, arrived, schedule_row
from tests.support.waiting import PATIENCE, eventually

SAFE = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", str(PATIENCE))
TRIES = 3  # of a scanner, while its writes are refused


@pytest.fixture(params=["the group", "a plain Redis"])
def broker(request, redis_server, redis_url):
    return None if request.param == "the group" else redis_server


def test_nothing_counts_against_a_task_and_all_goes_on_when_the_replica_is_back(
    start_group, make_delayq, start_scanner, broker, caplog
):
    caplog.set_level(logging.DEBUG, "celery_delayq")
    group = start_group(*SAFE)
    conf = {}
    if broker:
        conf = {
            "broker_url": broker.url(),
            "delayq_url": group.url(),
            "delayq_transport_options": group.options,
        }
    delayq = make_delayq(group, **conf)
    row = schedule_row(delayq, 20, first=0.0, every=0.0)
    group.replicas[0].kill()
    master = group.master
    eventually(lambda: master.info()["min_slaves_good_slaves"] == 0)

    start_scanner(delayq)
    eventually(lambda: caplog.text.count("NOREPLICAS") >= TRIES)
    with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
        delayq.note.apply_async(delayq_at=FAR)
    counts = delayq.counts()
    assert (counts.scheduled, counts.refused, counts.dead, counts.in_flight) == (20, 0, 0, 0)

    next(node for node in group.nodes if node is not master).start()
    node = broker or master
    eventually(lambda: len(arrived(node)) == len(row), 30)
    with node.client() as client:
        messages = [json.loads(one) for one in client.lrange(QUEUE, 0, -1)]
    assert {one["headers"]["id"] for one in messages} == set(row)
    assert {one["headers"].get("delayq_attempt") for one in messages} <= {None, 1}
    assert {one["headers"].get("delayq_redelivered") for one in messages} == {None}
