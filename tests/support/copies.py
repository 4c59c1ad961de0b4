"""Several copies of one hand-over, made as they come to be: leases run out, one after the other."""

from contextlib import closing

from celery_delayq import DelayQ
from celery_delayq.handover.link import Link
from celery_delayq.store import Engine, LeasedEntry, Scripts
from tests.support.waiting import eventually

AT_ONCE = 0.001  # seconds; a lease that has run out when it is looked at


def attempts_at(delayq: DelayQ, count: int) -> list[LeasedEntry]:
    """The one entry that is due, as each of *count* scanners holds it that do not acknowledge."""
    services = delayq.services
    made: list[LeasedEntry] = []
    scripts = Scripts(services.connect(), services.scripts.keys)
    with closing(Engine(scripts, batch_size=1, lease=AT_ONCE, alive=1.0)) as engine:
        for _ in range(count):
            (entry,), _ = engine.claim(1)
            made.append(entry)
            assert eventually(engine.reclaim, message="the lease runs out") == [entry.task_id]
    assert [entry.attempts for entry in made] == list(range(count))
    return made


def publish(delayq: DelayQ, *copies: LeasedEntry) -> None:
    """Send copies, in this order, as their scanners would."""
    with closing(Link(delayq.services.app.connection_for_write, timeout=10)) as link:
        for entry in copies:
            [(_, verdict)] = link.publish([entry], lambda: False)
            assert verdict.word == "sent"
