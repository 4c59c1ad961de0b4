"""The app of the six scenes: a Celery app, and one line more."""

from celery import Celery

from celery_delayq import DelayQ

app = Celery(
    "scenes",
    broker="redis://localhost:6379/0",
    backend="redis://localhost:6379/1",
    include=["scenes.topup", "scenes.reading", "scenes.welcome", "scenes.form", "scenes.lock"],
)
delayq = DelayQ(app)

# For `scenes/latest.py`: the last ten events, without immediate repeats.
app.conf.delayq_history = 10
app.conf.delayq_history_repeats = False
