"""An app as a user has it: its Redis is that of production, so no test may connect to it."""

from types import SimpleNamespace

import pytest

from celery_delayq import DelayQ

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
def shop(make_app):
    app = make_app(f"{NOWHERE}/0", f"{NOWHERE}/1", broker_connection_timeout=1)
    delayq = DelayQ(app)
    closed = set()

    @app.task(name="remind")
    def remind(user):
        return f"reminded {user}"

    @app.task(name="forgets", ignore_result=True)
    def forgets():
        return "forgotten"

    @app.task(name="boom")
    def boom():
        raise ValueError("boom")

    @app.task(name="flaky", bind=True)
    def flaky(self, fails):
        if self.request.retries < fails:
            raise self.retry(countdown=600)
        return self.request.retries

    @app.task(name="locked", bind=True)
    def locked(self, box):
        if box in closed:
            raise self.defer(after=5)
        return f"opened {box}"

    @app.task(name="asked", bind=True)
    def asked(self, *args, **kwargs):
        request = self.request
        return {
            "id": request.id,
            "args": (list(request.args), request.kwargs),
            "due": delayq.due_of(request).isoformat() if delayq.due_of(request) else None,
            "eager": request.is_eager,
            "headers": request.get("ours"),
            "routing_key": request.delivery_info["routing_key"],
        }

    @app.task(name="endless")
    def endless():
        endless.delay()

    @app.task(name="total")
    def total(numbers):
        return sum(numbers)

    @app.task(name="number")
    def number(value):
        return value

    tasks = (remind, forgets, boom, flaky, locked, asked, endless, total, number)
    return SimpleNamespace(
        app=app, delayq=delayq, closed=closed, **{task.name: task for task in tasks}
    )


@pytest.fixture
def delayq_app(shop):
    return shop.app
