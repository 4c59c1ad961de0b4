"""The one scanner that waits for the next due time dies, and another one takes over."""

import contextlib
import os
import signal

import pytest

from celery_delayq.core.store import Keys
from tests.support.waiting import eventually

KEYS = Keys("delayq")
FOREVER = 300  # seconds of safety interval: too long to be of help


IN_TIME = 0.5  # seconds before the due time


def watcher(client) -> int:
    """The process that is up for the head; its scanner's name tells."""
    at_and_name = (client.hget(KEYS["meta"], "timer") or b"").decode()
    return int(at_and_name.split(":")[2]) if at_and_name else 0


def calls(client) -> int:
    return client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]


def watched(client, delayq, count) -> tuple[float, int]:
    """When the next task is due, which all scanners know; and the process that is up for it.

    On a busy machine, the first of these tasks may be due before all have looked.
    """
    while True:
        due = delayq.note.delay_for(2).due.timestamp()
        client.config_resetstat()
        client.publish(KEYS["wake"], "")
        eventually(lambda: calls(client) >= count)
        victim = watcher(client)
        if delayq.counts().now_ms / 1000 < due - IN_TIME:
            return due, victim
        eventually(lambda: client.llen("celery"))
        client.delete("celery")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["KILL", "STOP"])
def test_another_one_steps_in_soon_after_the_due_time(
    client, redis_url, make_delayq, start_scanner, number
):
    delayq = make_delayq(redis_url)
    delayq.note.apply_async(delayq_after=3600)
    conf = {"broker_url": redis_url, "delayq_safety_interval": FOREVER}
    scanners = [start_scanner(conf) for _ in range(3)]
    for scanner in scanners:
        scanner.wait_started()
    eventually(lambda: client.zcard(KEYS["scanners"]) == 3)
    due, victim = watched(client, delayq, len(scanners))
    assert victim in [scanner.pid for scanner in scanners]
    os.kill(victim, number)
    eventually(lambda: client.llen("celery"))
    assert delayq.counts().now_ms / 1000 >= due
    if number == signal.SIGSTOP:
        os.kill(victim, signal.SIGCONT)


def test_many_scanners_do_not_all_call_at_each_due_time(client, redis_url, make_delayq):
    delayq = make_delayq(redis_url, delayq_safety_interval=FOREVER)
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            scanner = delayq.scanner()
            scanner.start()
            stack.callback(scanner.stop)
        eventually(lambda: client.zcard(KEYS["scanners"]) == 20)
        start = delayq.counts().now_ms / 1000 + 0.5
        client.config_resetstat()
        for number in range(50):
            delayq.note.apply_async(delayq_at=start + number / 50)
        eventually(lambda: client.llen("celery") == 50)
        made = calls(client)
    # One for each scheduling; for each due time two or three, more on a slow machine; not twenty.
    assert made < 50 + 50 * 10
