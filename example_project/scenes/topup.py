"""Top-up reminder: whoever opens the page, and has not paid after 30 minutes, is reminded.

The key is made of the user, so whoever takes the money can cancel it, and nobody keeps a task id.
"""

from datetime import timedelta

from scenes.app import app, delayq


@app.task
def remind(user):
    return f"{user}, your top-up is not paid"


def page_opened(user, patience=timedelta(minutes=30)):
    """Opening it again keeps the reminder that there is, and its time."""
    return delayq.schedule(remind.s(user), after=patience, key=f"topup:{user}", conflict="keep")


def paid(user):
    """The answer is true: DONE, or HANDED_OVER where the reminder was on its way already."""
    return delayq.cancel(key=f"topup:{user}")
