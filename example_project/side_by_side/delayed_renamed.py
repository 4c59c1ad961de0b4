"""The next release of the app with celery_delayq: its task has another name."""

from celery import Celery

from celery_delayq import DelayQ

app = Celery("delayed", broker="redis://localhost:6379/0", backend="redis://localhost:6379/1")
app.conf.task_default_queue = "delayed"
delayq = DelayQ(app)


@app.task
def send_reminder(user):
    return f"{user} is reminded"
