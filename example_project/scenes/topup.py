"""Top-up reminder: a user who opened the page, and has not paid after 30 minutes, is reminded.

The key contains the user, so the code that takes the money can cancel it without a task id.
"""

from datetime import timedelta

from scenes.app import app, delayq


@app.task
def remind(user):
    return f"{user}, your top-up is not paid"


def page_opened(user, patience=timedelta(minutes=30)):
    """If the user opens it again, the waiting reminder and its time stay."""
    return delayq.schedule(remind.s(user), after=patience, key=f"topup:{user}", conflict="keep")


def paid(user):
    """Return DONE, or HANDED_OVER if the reminder was delivered already."""
    return delayq.cancel(key=f"topup:{user}")
