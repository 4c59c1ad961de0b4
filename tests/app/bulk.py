"""One task with many arguments, scheduled in both ways: one call each, and one call for all."""

import json
from itertools import zip_longest

from tests.app.support import LONG_AGO, comparable, lists

ITEMS = [
    ((1,), {}),
    ((1,), {"y": "two"}),
    ([{"deep": [[2]]}], {}),
    ((), {"x": {"deep": [1.5, None]}, "y": "ü\n"}),
    ((3, 4), {}),
]


def plain_task(app, **options):
    @app.task(name="tests.remind", **options)
    def remind(x=0, y=0):
        return x

    return remind


def numbered(count):
    return (((number,), {}) for number in range(count))


def both_ways(redis, signature, items=ITEMS, ids=(), **times):
    """The messages that reach the queues: from ``schedule`` calls, and from ``schedule_many``."""
    delayq, times = signature.app.delayq, times or {"at": LONG_AGO}
    one_by_one = []
    for (args, kwargs), task_id in zip_longest(items, ids):
        one = signature.clone(args, kwargs)
        if task_id:
            one.options["task_id"] = task_id
        one_by_one.append(delayq.schedule(one, **times).id)
    singly = _arrived(delayq, redis, one_by_one)
    own = [(*item, None, task_id) for item, task_id in zip_longest(items, ids)]
    bulk = delayq.schedule_many(signature, own, **times)
    assert bulk.refused == {}
    return singly, _arrived(delayq, redis, bulk.ids)


def _arrived(delayq, redis, ids):
    """Each queue's messages, oldest first, with each task's id replaced by its item's place."""
    assert delayq.hand_over() == len(ids)
    found = {}
    for key, messages in lists(redis).items():
        found[key] = [comparable(_with_places(raw, ids)) for raw in messages]
    redis.flushall()
    return found


def _with_places(raw, ids):
    for place, task_id in enumerate(ids):
        raw = raw.replace(json.dumps(task_id).encode(), b'"the id of %d"' % place)
    return raw
