"""The remote command `delayq`: a worker's replies, and the messages of `app.control`."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from celery.app.control import Inspect
from celery.worker.control import Panel

from celery_delayq import __version__
from celery_delayq.contrib.control import panel  # noqa: F401 - registers the command
from celery_delayq.core.clock import from_ms
from tests.app.support import FAR, LONG_AGO

pytestmark = pytest.mark.libraries


@pytest.fixture
def ask(app):
    """Ask a worker's panel as a message does."""
    state = SimpleNamespace(app=app, hostname="w@here")
    return lambda command, **arguments: Panel.data[command](state, **arguments)


def test_a_worker_tells_how_its_store_stands(app, ask, redis_server):
    app.delayq.pause(queue="mail", late=True)
    app.send_task("t", queue="mail", delayq_at=LONG_AGO)
    app.send_task("t", delayq_at=FAR)
    app.delayq.hand_over()

    told = ask("delayq")

    [pause] = app.delayq.pauses()
    assert (
        json.loads(json.dumps(told))
        == told
        == {
            "store": redis_server.url(),
            "prefix": "delayq",
            "version": __version__,
            "path": "direct",
            "other_broker": None,
            "scheduled": 1,
            "overdue": 0,
            "refused": 0,
            "paused": 1,
            "in_flight": 0,
            "dead": 0,
            "scanners": [],
            "oldest_overdue": None,
            "is_exact": True,
            "began": from_ms(app.delayq.counts().began_ms).isoformat(),
            "rules": 0,
            "troubled_rules": 0,
            "next_due": "2100-01-01T00:00:00+00:00",
            "pauses": [
                {
                    "queue": "mail",
                    "task": None,
                    "since": pause.since.isoformat(),
                    "late": True,
                    "parked": 1,
                    "resumed": False,
                    "rate": None,
                    "is_exact": True,
                    "held_since": pause.held_since.isoformat(),
                }
            ],
        }
    )


def test_a_store_that_refuses_is_answered_with_a_sentence(app, ask, redis):
    redis.set("{delayq:0}:paused", "no hash")
    assert " failed: " in ask("delayq")["error"]


def test_an_app_without_delayq_is_answered_with_a_sentence(make_app):
    told = Panel.data["delayq"](SimpleNamespace(app=make_app(), hostname="w@here"))
    assert told == {"error": "the app 'tests' has no DelayQ; make one with DelayQ(app)"}


# The app's side.


@pytest.fixture
def sent(app, monkeypatch):
    """The messages of `app.control` to workers."""
    sent = []
    monkeypatch.setattr(
        type(app.control).__mro__[0],
        "broadcast",
        lambda _, command, **options: sent.append((command, options)) or "answered",
        raising=False,
    )
    return sent


def test_inspect_has_the_question_and_all_of_celery_s_own(app, sent, monkeypatch):
    inspect = app.control.inspect(destination=["w@here"], timeout=5)
    monkeypatch.setattr(Inspect, "_prepare", lambda _, reply: reply)
    assert inspect.delayq() == "answered"
    [(command, options)] = sent
    assert (command, options["arguments"]) == ("delayq", {})
    assert (options["destination"], options["timeout"]) == (["w@here"], 5)
    assert inspect.ping() == "answered"
    assert type(inspect).__name__ == "Inspect"
    assert app.control.inspect is app.control.inspect


# Workers that know the command.


def test_only_workers_and_the_command_line_load_what_they_need():
    code = """
import sys, celery_delayq
from celery import Celery
app = Celery("shop", broker="memory://")
celery_delayq.DelayQ(app)
app.control.inspect
assert "celery.worker.control" not in sys.modules
import celery.bin.celery
from celery.app.control import Inspect
from celery.worker.control import Panel

from celery_delayq import __version__
from celery_delayq.contrib.control import panel  # noqa: F401 - registers the command
kinds = {name: one.type for name, one in Panel.meta.items() if "delayq" in name}
print(sorted(kinds.items()))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    known = [("delayq", "inspect")]
    assert ran.stdout == f"{known}\n", ran.stderr
