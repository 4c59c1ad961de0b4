"""What the tests of keys and conflicts share."""

from tests.app.support import FAR

EARLIER, LATER = FAR - 60, FAR + 60
ALWAYS = ["reject", "keep", "replace", "earliest", "latest", "debounce"]

# Where FAR is when the task is due that is there already.
KEEPING = {
    "keep": {"conflict": "keep", "at": EARLIER},
    "earliest": {"conflict": "earliest", "at": LATER},
    "earliest, at the same time": {"conflict": "earliest", "at": FAR},
    "latest": {"conflict": "latest", "at": EARLIER},
    "latest, at the same time": {"conflict": "latest", "at": FAR},
}
REPLACING = {
    "replace": {"conflict": "replace", "at": LATER},
    "earliest": {"conflict": "earliest", "at": EARLIER},
    "latest": {"conflict": "latest", "at": LATER},
    "debounce": {"conflict": "debounce", "at": LATER},
}


def waiting(delayq):
    """Arguments of all that waits, by id."""
    return {task.id: task.args for task in delayq.tasks()}


def told(task_id, app):
    """What who waits for a result is told: its state, and why."""
    meta = app.backend.get_task_meta(task_id)
    return meta["status"], str(meta["result"])


def owed(redis):
    """Of how many tasks ``REVOKED`` is to be stored."""
    return redis.zcard("{delayq:0}:outbox")
