"""A form that submits itself a minute after it was written, unless a user does so before.

Until then you can edit its content and move its time. The task's id contains the form's.
"""

from datetime import timedelta

from scenes.app import app, delayq


@app.task
def send(form, text):
    return f"form {form} says {text!r}"


def write(form, text, wait=timedelta(minutes=1)):
    return send.s(form, text).set(task_id=f"form-{form}").delay_for(wait)


def look(form):
    """Return the waiting task: its `args`, its `due` time, and its `revision`, for `edit`."""
    return delayq.get(f"form-{form}")


def edit(form, text, revision):
    """If two people edit the same revision, the second gets UNCHANGED."""
    return delayq.edit(f"form-{form}", args=(form, text), if_revision=revision)


def put_off(form, by):
    return delayq.reschedule(f"form-{form}", by=by)


def submit(form):
    return delayq.run_now(f"form-{form}")
