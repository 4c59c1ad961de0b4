"""Come back and read: two hours after a user's last reading, a reminder of the page.

Each reading postpones it, until a day after the first one at most.
"""

from datetime import timedelta

from scenes.app import app, delayq


@app.task
def come_back(user, page):
    return f"{user}, go on after page {page}"


def read(user, page, quiet=timedelta(hours=2), cap=timedelta(days=1)):
    reminder = come_back.s(user, page)
    return delayq.schedule(
        reminder, after=quiet, key=f"read:{user}", conflict="debounce", max_wait=cap
    )
