"""Helpers for the tests of keys and conflicts."""

from tests.app.support import FAR
from tests.support.shards import total

EARLIER, LATER = FAR - 60, FAR + 60

# FAR is the due time of the task that is there already.
KEEPING = {
    "keep": {"conflict": "keep", "at": EARLIER},
    "earliest": {"conflict": "earliest", "at": LATER},
    "latest": {"conflict": "latest", "at": EARLIER},
}
REPLACING = {
    "replace": {"conflict": "replace", "at": LATER},
    "earliest": {"conflict": "earliest", "at": EARLIER},
    "latest": {"conflict": "latest", "at": LATER},
    "debounce": {"conflict": "debounce", "at": LATER},
}


def waiting(delayq):
    """The arguments of all waiting tasks, by id."""
    return {task.id: task.args for task in delayq.tasks()}


def told(task_id, app):
    """The state of a result in the backend, and the reason for it."""
    meta = app.backend.get_task_meta(task_id)
    return meta["status"], str(meta["result"])


def owed(redis):
    """The number of tasks for which ``REVOKED`` must still be stored."""
    return total(redis.zcard, "outbox")
