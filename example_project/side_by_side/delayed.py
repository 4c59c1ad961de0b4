"""The same app with one line more. Its tasks wait in Redis, by ``delay_for``."""

from celery import Celery

from celery_delayq import DelayQ

app = Celery("delayed", broker="redis://localhost:6379/0", backend="redis://localhost:6379/1")
app.conf.task_default_queue = "delayed"
delayq = DelayQ(app)


@app.task
def remind(user):
    return f"{user} is reminded"
