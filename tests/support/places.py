"""A task of an app in a place or a state, by the steps of the app's own services.

``at(delayq, "dead", "a", queue="mail")`` schedules the task ``a`` and takes it there; ``take`` does
so with one that is due.
"""

import contextlib
from collections.abc import Iterator

from redis import Redis

from celery_delayq import DelayQ
from celery_delayq.core.store.delivery import MAX_REFUSALS, LeasedEntry

DUE = 1_000_000_000  # Unix time, long ago
OF_NO_LIST = {"exchange": "x", "routing_key": "x"}  # so that a scanner publishes it
VERDICTS = {"unsent": "unsent", "uncertain": "unknown", "refused": "refused", "dead": "dead"}


def at(
    delayq: DelayQ,
    place: str,
    *ids: str,
    name: str = "t",
    wait: float = 60.0,
    uncertain: bool = False,
    reason: str = "NO_ROUTE",
    **options: object,
) -> list[LeasedEntry]:
    """Schedule a task, "a", or several, and take it to a place or a state.

    Args:
        delayq: Whose task it is.
        place: parked, or one of `take`.
        ids: Of the tasks.
        name: Of the tasks.
        wait: As in `take`, like the next two.
        uncertain: As there.
        reason: As there.
        options: Of ``send_task``. Without a queue or an exchange, it is bound for no list.
    """
    ids = ids or ("a",)
    if place == "parked":
        delayq.pause(queue=str(options.setdefault("queue", "celery")))
    elif not {"queue", "exchange"} & options.keys():
        options |= OF_NO_LIST
    for task_id in ids:
        delayq.app.send_task(name, task_id=task_id, delayq_at=DUE, **options)
    if place == "parked":
        delayq.hand_over()
        return []
    return take(delayq, place, *ids, wait=wait, uncertain=uncertain, reason=reason)


def take(
    delayq: DelayQ,
    place: str,
    *ids: str,
    wait: float = 60.0,
    uncertain: bool = False,
    reason: str = "NO_ROUTE",
) -> list[LeasedEntry]:
    """Take due tasks to a place or a state; return their claims, if a scanner had them.

    ==================  ==================================================================
    leased, lapsed      a scanner publishes it; or did, when its lease ran out
    unsent, uncertain   it was given back: as it was, or as possibly delivered
    refused, dead       its list, or the broker, refused it: for now or for good
    left                it was delivered
    ==================  ==================================================================

    Args:
        delayq: Whose tasks they are.
        place: One of these.
        ids: Of the tasks: all bound for lists, or none.
        wait: Until the next try of one that the broker refused, in seconds.
        uncertain: Whether such a one, or a dead one, may have been delivered.
        reason: Why the broker refused it.
    """
    found = [delayq.services.entries.find(task_id) for task_id in ids]
    queues = {one.record.destination for one in found if one.record.is_for_list}
    if queues and place == "left":
        delayq.hand_over()
        return []
    if queues:
        with _store_of(delayq) as redis:
            _refuse(delayq, redis, queues, MAX_REFUSALS if place == "dead" else 1)
        return []
    claims: dict[str, LeasedEntry] = {}
    for shard_steps in delayq.services.steps_by_shard():
        with contextlib.closing(shard_steps):
            claimed = shard_steps.claim(100).entries
            meant = [one for one in claimed if one.task_id in ids]
            shard_steps.nack("unsent", [one for one in claimed if one not in meant])
            if place in VERDICTS:
                given = {"wait": wait, "uncertain": uncertain, "reason": reason}
                shard_steps.nack(VERDICTS[place], meant, **given)
            elif place == "left":
                shard_steps.ack(meant)
            claims |= {one.task_id: one for one in meant}
    assert claims.keys() == set(ids), f"{set(ids) - claims.keys()} are not due"
    if place == "lapsed":
        lease_out(delayq, *ids)
    return [claims[task_id] for task_id in ids]


def lease_out(delayq: DelayQ, *ids: str) -> None:
    """Let the leases of tasks run out, or all, as if time had passed."""
    with _store_of(delayq) as redis:
        for scripts in delayq.services.scripts:
            for member in redis.zrange(scripts.keys["leased"], 0, -1):
                if not ids or member[6:].decode() in ids:
                    redis.zadd(scripts.keys["leased"], {member: 1})


def _refuse(delayq: DelayQ, redis: Redis, queues: set[str], times: int) -> None:
    """Deliver to lists that refuse, without the waits in between."""
    full = [queue for queue in queues if redis.type(queue) == b"list"]
    assert not full, f"{full} has messages, and refuses none"
    made = [queue for queue in queues if redis.set(queue, "no list", nx=True)]
    for number in range(times):
        if number:
            for scripts in delayq.services.scripts:
                for member in redis.zrange(scripts.keys["refused"], 0, -1):
                    redis.zadd(scripts.keys["refused"], {member: 0})
        delayq.hand_over()
    if made:
        redis.delete(*made)


@contextlib.contextmanager
def _store_of(delayq: DelayQ) -> Iterator[Redis]:
    conf = delayq.app.conf
    with Redis.from_url(conf.get("delayq_url") or conf.broker_url) as redis:
        yield redis
