"""The next release of the plain app: its task has another name."""

from celery import Celery

app = Celery("plain", broker="redis://localhost:6379/0", backend="redis://localhost:6379/1")
app.conf.task_default_queue = "plain"


@app.task
def send_reminder(user):
    return f"{user} is reminded"
