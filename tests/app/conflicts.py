"""Helpers for the tests of keys and conflicts."""

from tests.support.shards import total


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
