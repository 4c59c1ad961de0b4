"""Welcome: some time after a user registered or left, recommend something.

Each user has a delay of their own. One call moves all waiting tasks with a tag.
"""

from scenes.app import app, delayq


@app.task
def recommend(user, what):
    return f"{user}, have a look at {what}"


def registered(user, wait):
    return delayq.schedule(recommend.s(user, "the tour"), after=wait, tags=["registered"])


def left(user, wait):
    return delayq.schedule(recommend.s(user, "the news"), after=wait, tags=["left"])


def move_all(tag, by):
    """Return how many were moved."""
    return delayq.select(tag=tag).reschedule(by=by)
