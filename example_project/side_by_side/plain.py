"""A plain Celery app. Its tasks wait in the memory of a worker, by ``countdown``."""

from celery import Celery

app = Celery("plain", broker="redis://localhost:6379/0", backend="redis://localhost:6379/1")
app.conf.task_default_queue = "plain"


@app.task
def remind(user):
    return f"{user} is reminded"
