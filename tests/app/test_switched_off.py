"""`delayq_enabled = False`: Celery is unchanged, and scheduling raises an error with the reason."""

import pickle
import types
from datetime import timedelta
from functools import partial

import click
import pytest
from celery import Celery
from celery.app.amqp import AMQP
from celery.app.control import Control
from celery.beat import Service
from celery.result import AsyncResult
from celery.signals import beat_init

from celery_delayq import Defer, DelayQ, ScannerStep
from celery_delayq.errors import SwitchedOff
from tests.app.support import FAR, lists, noop
from tests.support.forked import run_forked
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries

OFF = {"delayq_enabled": False, "delayq_capture_eta": True}


def configured_before(app):
    app.conf.update(OFF)
    assert app.conf.delayq_enabled is False
    return DelayQ(app)


def configured_behind(app):
    delayq = DelayQ(app)
    app.conf.update(OFF)
    return delayq


def configured_by_a_module(app):
    module = types.SimpleNamespace(**OFF)
    app.config_from_object(module)
    return DelayQ(app)


WAYS = [configured_before, configured_behind, configured_by_a_module]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def off(request, make_app, url):
    app = make_app(url)
    app.task(name="t")(noop)
    request.param(app)
    return app


def changeable(app):
    """The parts of an app that DelayQ(app) changes unless it is switched off."""
    return (
        {name: vars(app)[name] for name in ("amqp_cls", "control_cls", "task_cls", "fixups")},
        app.AsyncResult,
        {name: {*found} for name, found in app.steps.items() if found},
        {name: {*found} for name, found in app.user_options.items() if found},
        {*app.tasks},
    )


@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_the_app_is_changed(make_app, url, way):
    plain, app = make_app(url), make_app(url)
    way(app)
    app.finalize()

    found = changeable(app)

    assert found[0] == changeable(plain)[0]
    assert app.AsyncResult.__mro__[1] is AsyncResult
    assert found[2:] == changeable(plain)[2:]
    assert (type(app.amqp), type(app.control)) == (AMQP, Control)


def test_an_app_has_its_earlier_parts_again(make_app, url):
    class OwnAMQP(AMQP):
        pass

    app = make_app(url)
    app.amqp_cls = OwnAMQP
    app.steps["worker"].add("own:Step")

    configured_behind(app)
    app.finalize()

    assert app.amqp_cls is OwnAMQP
    assert app.steps["worker"] == {"own:Step"}


@pytest.mark.parametrize("first", ["task", "app"])
def test_an_eta_is_celery_s_from_the_very_first_call_on(off, redis, first):
    sends = off.tasks["t"].apply_async if first == "task" else partial(off.send_task, "t")

    sends(countdown=3600)

    assert redis.keys("{delayq*") == []
    [[message]] = lists(redis).values()
    assert b'"eta": "20' in message


def test_celery_ignores_the_options_of_a_call(off, redis):
    off.tasks["t"].apply_async(delayq_at=FAR, delayq_key="k")

    [[message]] = lists(redis).values()
    assert b'"eta": null' in message


def test_revoke_asks_the_workers_alone(off, redis):
    off.control.revoke("a")

    assert redis.keys("{delayq*") == []


CALLS = {
    "delay_until": lambda app: app.tasks["t"].delay_until(FAR, 1),
    "delay_for": lambda app: app.tasks["t"].delay_for(60, 1),
    "signature": lambda app: app.signature("t").delay_for(60, 1),
    "schedule": lambda app: app.delayq.schedule(app.signature("t"), after=60),
    "schedule_many": lambda app: app.delayq.schedule_many(app.tasks["t"], [((1,), {})], after=60),
    "cancel": lambda app: app.delayq.cancel("a"),
    "reschedule": lambda app: app.delayq.reschedule("a", after=timedelta(1)),
    "get": lambda app: app.delayq.get("a"),
    "tasks": lambda app: list(app.delayq.tasks()),
    "select": lambda app: app.delayq.select(all=True).count(),
    "status": lambda app: app.delayq.status(),
    "hand_over": lambda app: app.delayq.hand_over(),
    "scanner": lambda app: app.delayq.scanner(),
    "check": lambda app: list(app.delayq.check()),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_scheduling_says_so_and_sends_nothing(off, redis, call):
    for _ in range(2):
        with pytest.raises(SwitchedOff) as caught:
            call(off)
        assert str(caught.value) == (
            "the DelayQ of the app 'tests' is switched off by delayq_enabled = False"
        )

    assert redis.keys("*") == []


def test_a_task_cannot_put_itself_off(off):
    off.conf.task_always_eager = True

    @off.task
    def later():
        raise Defer(after=60)

    assert isinstance(later.apply().result, Defer)


def test_a_step_added_by_hand_scans_nothing_where_it_is_switched_off(off):
    off.finalize()  # as a worker does first
    worker = types.SimpleNamespace(app=off)

    step = ScannerStep(worker)

    assert not step.enabled


def test_a_second_delayq_of_the_app_is_off_too(off):
    with pytest.raises(SwitchedOff):
        DelayQ(off).get("a")


def test_a_copy_of_the_app_is_off_too(off, redis):
    copy = pickle.loads(pickle.dumps(off))

    copy.send_task("t", countdown=3600)

    assert redis.keys("{delayq*") == []


def test_beat_starts_without_a_word_where_it_is_switched_off(off, delayq, caplog, tmp_path):
    assert delayq.services  # the DelayQ of another app, which listens to beat
    with click.Context(click.Command("beat"), info_name="beat"):
        beat_init.send(sender=Service(off, schedule_filename=str(tmp_path / "schedule")))
    assert not caplog.records


def test_the_command_line_says_so(tmp_path, url):
    module = tmp_path / "switched_off.py"
    module.write_text(
        "from celery import Celery\nfrom celery_delayq import DelayQ\n"
        f"app = Celery('shop', broker={url!r})\nDelayQ(app)\napp.conf.delayq_enabled = False\n"
    )

    ran = run_forked("-m", "celery", "-A", "switched_off", "delayq", "status", cwd=tmp_path)

    assert ran.returncode == 1
    assert "the DelayQ of the app 'shop' is switched off" in ran.stderr


def test_a_worker_runs_tasks_as_ever_and_never_looks_at_a_store(
    start_worker, tmp_path, url, redis, monkeypatch
):
    ran = tmp_path / "ran"
    tmp_path.joinpath("switched_off.py").write_text(
        "from pathlib import Path\nfrom celery import Celery\nfrom celery_delayq import DelayQ\n"
        f"app = Celery('shop', broker={url!r})\nDelayQ(app)\n"
        "app.conf.update(delayq_enabled=False, delayq_capture_eta=True)\n"
        f"@app.task(name='t')\ndef t():\n    Path({str(ran)!r}).touch()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    start_worker("switched_off", "-P", "solo")

    Celery("sender", broker=url).send_task("t", countdown=0.2)

    eventually(ran.exists)
    assert redis.keys("{delayq*") == []
