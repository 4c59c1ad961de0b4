"""Scanner processes that die, or are stopped, between two steps of a delivery."""

import pytest
from kombu import Queue

from celery_delayq import Outcome
from tests.lab.faults.processes import ScannerProcess
from tests.relay.house import end_leases
from tests.support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.core, pytest.mark.libraries]

LEASE = 1  # second, of a process that outlasts it
LONG = 10 * PATIENCE  # the lease of every other one, which a busy machine does not outlast
WANTED = ["0", "1", "2"]


@pytest.fixture
def house(make_house, rabbitmq_server, redis_server):
    made = make_house(rabbitmq_server.url, delayq_lease=LONG, delayq_safety_interval=0.3)
    made.declare(Queue(made.queue))
    with redis_server.client() as made.store:
        yield made


@pytest.fixture
def scan(house, tmp_path):
    """Start a scanner process for the house: ``scan("published", "die")``."""
    started = []
    names = [
        "broker_url",
        "delayq_url",
        "delayq_safety_interval",
        "task_default_queue",
    ]
    conf = {name: house.app.conf[name] for name in names}

    def start(*fault, lease=LONG):
        log = tmp_path / f"scan-{len(started)}.log"
        started.append(ScannerProcess({**conf, "delayq_lease": lease}, *fault, log=log))
        return started[-1].wait_started()

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def three(house):
    return [house.due_now(task_id=task_id) for task_id in WANTED]


def told(messages):
    """From the messages' headers: id, attempt, and whether it may be a copy."""
    return [
        (
            message.headers["id"],
            message.headers["delayq_attempt"],
            message.headers.get("delayq_redelivered", False),
        )
        for message in messages
    ]


FIRST = [(task_id, 1, False) for task_id in WANTED]
SECOND = [(task_id, 2, True) for task_id in WANTED]


@pytest.mark.operations
@pytest.mark.parametrize(("step", "arrived"), [("claimed", []), ("published", FIRST)])
def test_death_before_the_ack_loses_nothing_and_marks_what_it_repeats(
    house, scan, three, step, arrived
):
    assert scan(step, "die").wait() == 9
    assert house.counts() == (0, 3, 0)
    assert house.left() == len(arrived)
    assert told(house.take(count=len(arrived))) == arrived
    end_leases(house.store)
    house.start()
    assert told(house.take(count=3)) == SECOND
    eventually(lambda: house.counts() == (0, 0, 0))
    assert house.left() == 0


@pytest.mark.operations
def test_a_scanner_that_slept_past_its_lease_publishes_nothing_of_it(house, scan, three):
    first = scan("claimed", "freeze", lease=LEASE)
    first.wait_log("frozen")
    frozen = house.delayq.counts().now_ms
    end_leases(house.store, at_ms=frozen + 60_000)
    assert house.delayq.cancel("0") is Outcome.IN_FLIGHT
    assert house.delayq.reschedule("1", after=60) is Outcome.IN_FLIGHT
    end_leases(house.store)
    house.start()
    assert told(house.take(count=3)) == SECOND
    eventually(lambda: house.delayq.counts().scanners == 1)
    # By its own clock, too, the lease is over.
    eventually(lambda: house.delayq.counts().now_ms > frozen + LEASE * 1000)
    first.thaw()
    # Once it shows a heartbeat again, it is awake and done with its batch.
    eventually(lambda: house.delayq.counts().scanners == 2)
    # In the time of its short lease, a busy broker might not confirm the last one.
    assert first.stop() == 0
    house.due_now(task_id="last")
    assert told(house.take(count=1)) == [("last", 1, False)]
    eventually(lambda: house.counts() == (0, 0, 0))
    assert house.left() == 0


@pytest.mark.operations
def test_a_late_ack_takes_nothing_away(house, scan, three):
    first = scan("published", "freeze")
    first.wait_log("frozen")
    assert told(house.take(count=3)) == FIRST
    end_leases(house.store)
    # They are not reclaimed yet, so they can be changed; the answer admits a possible copy.
    assert house.delayq.reschedule("0", after=3600) is Outcome.UNCERTAIN
    assert house.delayq.cancel("1") is Outcome.UNCERTAIN
    first.thaw()
    first.wait_log("the broker has confirmed 2 tasks without a lease: it ran out")
    assert house.delayq.get("0"), "the late ack is not for this version"
    # The third one was unchanged, so its late ack is valid.
    assert house.counts() == (1, 0, 0)
    assert house.left() == 0
