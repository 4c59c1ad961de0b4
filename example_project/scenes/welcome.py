"""Welcome: some time after somebody has registered, or has left, recommend something.

How long is each user's own. By their tag, all that wait are moved at once.
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
    """Answers how many were moved."""
    return delayq.select(tag=tag).reschedule(by=by)
