"""Several copies of one hand-over, made as in production: leases run out, one after the other."""

from contextlib import closing
from dataclasses import replace

from celery_delayq import DelayQ
from celery_delayq.core.handover.relay import Link
from celery_delayq.core.store import Scripts
from celery_delayq.core.store.delivery import LeasedEntry, ScannerSteps
from celery_delayq.core.store.keys import shard_of
from tests.support.waiting import PATIENCE, eventually

AT_ONCE = 0.001  # s; a lease that has run out when it is looked at


def attempts_at(delayq: DelayQ, task_id: str, count: int, *, ack: bool = True) -> list[LeasedEntry]:
    """An entry that is due, as each of *count* scanners holds it, one after the other.

    Args:
        delayq: Where it waits.
        task_id: Its id.
        count: How many attempts are made at it.
        ack: Whether the last of the scanners acknowledges it, or fails as the others do.
    """
    made: list[LeasedEntry] = []
    shards = delayq.services.scripts
    keys = shards[shard_of(task_id, len(shards))].keys
    settings = replace(delayq.services.settings, lease=AT_ONCE)
    scripts = Scripts(delayq.services.connect(), keys, settings)
    with closing(ScannerSteps(scripts, delayq.services.membership)) as shard_steps:
        for number in range(1, count + 1):
            claimed, *_ = shard_steps.claim(100)
            (entry,) = (one for one in claimed if one.task_id == task_id)
            made.append(entry)
            if ack and number == count:
                assert shard_steps.ack([entry]) == 1
            else:
                eventually(lambda: task_id in shard_steps.reclaim(), message="the lease runs out")
    return made


def publish(delayq: DelayQ, *copies: LeasedEntry) -> None:
    """Send copies, in this order, as their scanners would."""
    with closing(Link(delayq.services.app.connection_for_write, timeout=PATIENCE)) as link:
        for entry in copies:
            [(_, verdict)] = link.publish([entry], lambda: False)
            assert verdict.word == "sent"
