"""The remote commands: what a worker answers, and what `app.control` sends."""

import json
import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest
from celery.worker.control import Panel

from celery_delayq import State
from celery_delayq.errors import InvalidOption
from celery_delayq.integration import panel
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
                }
            ],
        }
    )


@pytest.mark.parametrize(
    ("arguments", "lane", "named"),
    [
        ({}, (None, None), "everything"),
        ({"words": []}, (None, None), "everything"),
        ({"words": ["queue=mail"]}, ("mail", None), "queue mail"),
        ({"queue": "mail", "task": None}, ("mail", None), "queue mail"),
        ({"words": ("task=a=b",)}, (None, "a=b"), "task a=b"),
    ],
)
def test_a_worker_pauses_and_resumes(app, ask, arguments, lane, named):
    for _ in range(2):  # two workers
        assert ask("delayq_pause", **arguments) == {"ok": f"{named} is paused"}
    [pause] = app.delayq.pauses()
    assert (pause.queue, pause.task, pause.late) == (*lane, False)
    assert ask("delayq_resume", **arguments) == {"ok": f"{named} is resumed"}
    assert app.delayq.pauses() == []
    assert ask("delayq_resume", **arguments) == {
        "ok": f"{named} is not paused; if it was, another worker has just resumed it"
    }


def test_what_a_worker_was_told_to_do_is_in_its_log(ask, caplog):
    caplog.set_level(logging.INFO, panel.__name__)
    for command in ("delayq_pause", "delayq_resume", "delayq_resume"):
        ask(command, queue="mail")
    assert caplog.messages == [
        "queue mail is paused, by remote control",
        "queue mail is resumed, by remote control",
    ]


@pytest.mark.parametrize(("word", "late"), [("true", True), ("0", False), ("yes", True)])
def test_a_pause_may_count_as_lateness(app, ask, word, late):
    ask("delayq_pause", words=[f"late={word}", "task=t"])
    assert app.delayq.pauses()[0].late is late


@pytest.mark.parametrize("arguments", [{"rate": 0.5}, {"words": ["rate=0.5"]}])
def test_what_is_resumed_comes_back_at_a_rate(app, ask, arguments):
    ask("delayq_pause")
    for number in range(3):
        app.send_task("t", task_id=str(number), delayq_at=LONG_AGO)
    app.delayq.hand_over()
    for _ in range(2):
        assert ask("delayq_resume", **arguments) == {"ok": "everything is resumed"}
    [pause] = app.delayq.pauses()
    assert (pause.resumed, pause.rate) == (True, 0.5)
    assert app.delayq.hand_over() == 1
    assert app.delayq.state("2") is State.PAUSED


RATE = "expected a number of tasks a second from 0.001 to 1000000"
PAUSE = "expected queue=… or task=… or late=…"


@pytest.mark.parametrize(
    ("command", "arguments", "sentence"),
    [
        ("delayq", {"queue": "mail"}, "argument is 'queue'; expected none"),
        ("delayq_pause", {"words": ["mail"]}, f"argument is 'mail'; {PAUSE}"),
        ("delayq_pause", {"words": ["rate=5"]}, f"argument is 'rate'; {PAUSE}"),
        ("delayq_pause", {"words": 5}, f"argument is 5; {PAUSE}"),
        ("delayq_pause", {"que": "mail"}, f"argument is 'que'; {PAUSE}"),
        ("delayq_pause", {"words": ["late=soon"]}, "late is 'soon'; expected true or false"),
        ("delayq_pause", {"late": "soon"}, "late is 'soon'; expected true or false"),
        ("delayq_pause", {"queue": 5}, "queue is 5; expected a name of 1 to 512 bytes"),
        ("delayq_pause", {"words": ["queue="]}, "queue is ''; expected a name of 1 to 512 bytes"),
        (
            "delayq_pause",
            {"words": ["queue=a", "task=b"]},
            "task is 'b'; expected a queue or a task to pause, and not both",
        ),
        ("delayq_resume", {"words": ["rate=fast"]}, f"rate is 'fast'; {RATE}"),
        ("delayq_resume", {"rate": 0}, f"rate is 0; {RATE}"),
    ],
)
def test_a_wrong_argument_is_answered_with_a_sentence(app, ask, command, arguments, sentence):
    assert ask(command, **arguments) == {"error": sentence}
    assert app.delayq.pauses() == []


@pytest.mark.parametrize("command", ["delayq", "delayq_pause", "delayq_resume"])
def test_a_store_that_refuses_is_answered_with_a_sentence(app, ask, redis, command):
    redis.set("{delayq:0}:paused", "no hash")
    assert " failed: " in ask(command)["error"]


def test_an_app_without_delayq_is_answered_with_a_sentence(make_app):
    told = Panel.data["delayq"](SimpleNamespace(app=make_app(), hostname="w@here"))
    assert told == {"error": "the app 'tests' has no DelayQ; make one with DelayQ(app)"}


# The app's side.


@pytest.fixture
def sent(app, monkeypatch):
    """What `app.control` tells workers."""
    sent = []
    monkeypatch.setattr(
        type(app.control).__mro__[0],
        "broadcast",
        lambda _, command, **options: sent.append((command, options)) or "answered",
        raising=False,
    )
    return sent


def test_the_app_s_control_sends_the_commands(app, sent):
    @app.task(name="shop.remind")
    def remind(): ...

    control = app.control
    assert control.delayq_pause(task=remind, late=True, destination=["w@here"], reply=True)
    assert control.delayq_resume("mail", rate=5)
    assert sent == [
        (
            "delayq_pause",
            {
                "arguments": {"queue": None, "task": "shop.remind", "late": True},
                "destination": ["w@here"],
                "reply": True,
            },
        ),
        (
            "delayq_resume",
            {"arguments": {"queue": "mail", "task": None, "rate": 5}, "destination": None},
        ),
    ]


@pytest.mark.parametrize(
    "tell",
    [
        lambda control: control.delayq_pause("a", "b"),
        lambda control: control.delayq_pause(queue=5),
        lambda control: control.delayq_resume(task=""),
        lambda control: control.delayq_resume(rate=0),
        lambda control: control.delayq_pause(late="soon"),
    ],
)
def test_what_is_wrong_is_refused_before_anybody_is_told(app, sent, tell):
    with pytest.raises(InvalidOption):
        tell(app.control)
    assert sent == []


def test_inspect_has_the_question_and_all_of_celery_s_own(app, sent, monkeypatch):
    inspect = app.control.inspect(destination=["w@here"], timeout=5)
    monkeypatch.setattr(inspect, "_prepare", lambda reply: reply)
    assert inspect.delayq() == "answered"
    [(command, options)] = sent
    assert (command, options["arguments"]) == ("delayq", {})
    assert (options["destination"], options["timeout"]) == (["w@here"], 5)
    assert inspect.ping() == "answered"
    assert type(inspect).__name__ == "Inspect"
    assert app.control.inspect is app.control.inspect


# Who knows the commands.


def test_only_workers_and_the_command_line_load_what_they_need():
    code = """
import sys, celery_delayq
from celery import Celery
app = Celery("shop", broker="memory://")
celery_delayq.DelayQ(app)
app.control.inspect
assert "celery.worker.control" not in sys.modules
import celery.bin.celery
from celery.worker.control import Panel
kinds = {name: one.type for name, one in Panel.meta.items() if "delayq" in name}
print(sorted(kinds.items()))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    asked, told = ("delayq",), ("delayq_pause", "delayq_resume")
    known = [*((name, "inspect") for name in asked), *((name, "control") for name in told)]
    assert ran.stdout == f"{known}\n", ran.stderr
