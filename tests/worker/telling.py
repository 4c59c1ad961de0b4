"""Writes each signal that any process sends for a task as a line to Redis.

The module is also the app of `celery -A tests.worker.telling`.
"""

import functools
import os

from celery import signals as celerys

from celery_delayq import signals as ours

SIGNALS = {
    name: getattr(celerys, name)
    for name in (
        "before_task_publish",
        "after_task_publish",
        "task_received",
        "task_prerun",
        "task_success",
        "task_retry",
        "task_postrun",
        "task_revoked",
    )
} | {name: getattr(ours, name) for name in ours.__all__}

HEARD = "heard:{}"


def ids_of(sender=None, headers=None, request=None, task_id=None, task_ids=None, **_):
    """The ids of the tasks that a signal is about."""
    if task_ids is not None:
        return task_ids
    if headers is not None:
        return [headers["id"]]
    return [task_id or (request or sender.request).id]


def listen(client):
    """Write down each signal; *client* connects any process to Redis."""
    for name, signal in SIGNALS.items():

        def heard(name=name, **facts):
            facts.pop("signal")
            for task_id in ids_of(**facts):
                client().rpush(HEARD.format(task_id), name)

        signal.connect(heard, weak=False, dispatch_uid=__name__)


def stop_listening():
    for signal in SIGNALS.values():
        signal.disconnect(dispatch_uid=__name__)


if "DELAYQ_TEST_CONF" in os.environ:
    from tests.worker.jobs import evidence
    from tests.worker.tasks import app

    __all__ = ["app"]
    listen(functools.partial(evidence))
