"""Top-up reminders: the Celery app, as a user of celery_delayq writes it."""

from datetime import datetime, timedelta, timezone

from celery import Celery

from celery_delayq import DelayQ

app = Celery("reminders", broker="redis://localhost:6379/0", backend="redis://localhost:6379/0")
delayq = DelayQ(app)


@app.task(bind=True)
def remind(self, user):
    """Remind a user of a top-up that was begun and not paid."""
    return {"to": user, "due": delayq.due_of(self.request), "ran": datetime.now(timezone.utc)}


def page_opened(user, patience=timedelta(minutes=30)):
    """The user looks at the top-up page: remind them, unless they pay in time."""
    return remind.delay_for(patience, user)


def paid(reminder):
    """The money is there. Answers truthfully whether the reminder could still be stopped."""
    return reminder.cancel()
