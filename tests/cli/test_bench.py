"""`delayq bench`: it measures, adds up, and leaves everything as it was."""

import json
import os
import pty
import subprocess
import sys
from contextlib import closing

import pytest
from celery.signals import before_task_publish

from celery_delayq.bench import run as bench
from celery_delayq.store import Engine, Entries, ScratchKeys
from celery_delayq.store.scripts import Scripts
from tests.app.support import FAR, LONG_AGO

pytestmark = pytest.mark.usefixtures("patient")

FEW = 1000
SAID = ("round trip", "schedule", "cancel", "hand over", "memory")


def nothing(_):
    """Nobody looks on."""


@pytest.fixture
def arrived(redis, before):
    """What comes to the list of a run."""
    messages = []
    before(ScratchKeys, "tidy", lambda room: messages.extend(redis.lrange(room.list, 0, -1)))
    return messages


def content(redis):
    return {key: (redis.dump(key), redis.ttl(key) > 1000) for key in redis.keys("*")}


def test_it_says_what_to_expect_and_leaves_no_key_behind(redis, said, before):
    seen = set()
    before(ScratchKeys, "tidy", lambda *_: seen.update(redis.keys("*")))

    lines = said("bench", "--tasks", f"{FEW}")

    assert tuple(line[:10].strip() for line in lines[:5]) == SAID
    assert lines[5] == ""
    assert [line.partition(" ")[0] for line in lines[6:]] == ["One", "schedule_many", "A", "A"]
    assert seen
    assert redis.keys("*") == []


def test_its_keys_are_named_after_the_app_s_and_no_two_runs_share_any(
    delayq_app, url, redis, before
):
    seen = set()
    before(ScratchKeys, "tidy", lambda *_: seen.update(redis.keys("*")))
    delayq = delayq_app(url, delayq_prefix="shop").delayq

    for _ in range(2):
        bench.run(delayq, FEW, nothing)

    assert all(key.startswith(b"{shop:bench-") for key in seen)
    assert len({key.partition(b"}")[0] for key in seen}) == 2


def test_what_others_have_in_redis_is_untouched(app, redis, said):
    redis.lpush("celery", "a task in its queue")
    redis.set("foreign", "value", ex=5000)
    for number in range(20):
        app.send_task("t", delayq_at=(LONG_AGO, FAR)[number % 2])
    was = content(redis)

    said("bench", "--tasks", f"{FEW}")

    assert content(redis) == was


def test_the_app_s_own_scanners_and_lists_see_nothing_of_it(app, redis, before):
    seen = []

    def look(*_):
        seen.append(
            (app.delayq.counts().scheduled, list(app.delayq.tasks()), app.delayq.hand_over())
        )

    before(ScratchKeys, "memory", look)

    bench.run(app.delayq, FEW, nothing)

    assert seen == [(0, [], 0)]


def test_every_task_is_handed_over_exactly_once(app, before, arrived):
    held = []
    before(Entries, "schedule", lambda _, new: held.extend(one.task_id for one in new))
    before(Entries, "cancel", lambda _, task_id: held.remove(task_id))

    figures = bench.run(app.delayq, FEW, nothing)

    assert sorted(json.loads(raw)["headers"]["id"] for raw in arrived) == sorted(held)
    assert figures.bulk.tasks == figures.hand_over.tasks == len(arrived) == FEW


def test_all_keys_have_a_time_to_live_after_each_step(app, redis, before):
    seen = []

    def look(*_):
        seen.append([redis.ttl(key) for key in redis.keys("{delayq:bench-*")])

    before(ScratchKeys, "memory", look)
    before(ScratchKeys, "__exit__", look)

    bench.run(app.delayq, FEW, nothing)

    assert [bool(lives) for lives in seen] == [True, True]
    assert all(0 < life <= 600 for lives in seen for life in lives)


def test_what_arrived_does_not_pile_up(app, redis, before):
    lengths = []
    before(Engine, "hand_over", lambda engine: lengths.append(redis.llen(_list_of(engine))))

    bench.run(app.delayq, 12_000, nothing)

    assert 0 < max(lengths) <= bench.TIDY * 200


def _list_of(engine):
    return engine._scripts.keys["due"].replace(":due", ":list")


@pytest.mark.parametrize("batch_size", [7, 1000])
def test_it_hands_over_as_the_app_s_scanners_do(delayq_app, url, batch_size):
    app = delayq_app(url, delayq_batch_size=batch_size)

    figures = bench.run(app.delayq, FEW, nothing)

    assert figures.hand_over.calls == -(-FEW // batch_size)


def test_progress_is_told_unit_by_unit(app):
    told = []

    bench.run(app.delayq, FEW, told.append)

    assert sum(told) == bench.units(FEW)


def test_no_measure_goes_on_when_its_time_is_over(app, redis, monkeypatch):
    monkeypatch.setattr(bench, "BRIEFLY", 1e-9)
    monkeypatch.setattr(bench, "_longest", lambda _: 1e-9)

    figures = bench.run(app.delayq, 1_000_000, nothing)

    assert (figures.one.tasks, figures.cancel.tasks) == (1, 1)
    assert (figures.bulk.tasks, figures.hand_over.tasks) == (200, 200)
    assert redis.keys("*") == []


def test_json_is_one_object_with_every_figure(said):
    [line] = said("bench", "--tasks", f"{FEW}", "--json")
    facts = json.loads(line)

    step = ["tasks", "per_second", "call_ms", "longest_call_ms", "redis_busy"]
    step += ["this_process_busy", "limit"]
    assert list(facts) == [
        "direct", "round_trip_ms", "bytes_per_second", "schedule_one", "cancel_one",
        "schedule_many", "hand_over", "memory_bytes_per_task",
    ]  # fmt: skip
    assert facts["direct"] is True
    assert 0 < facts["round_trip_ms"]["median"] <= facts["round_trip_ms"]["p99"]
    assert 200 < facts["memory_bytes_per_task"] < 2000
    for name, tasks in (("schedule_one", 300), ("cancel_one", 300), ("schedule_many", FEW),
                        ("hand_over", FEW)):  # fmt: skip
        one = facts[name]
        assert list(one) == step
        assert one["tasks"] == tasks
        assert one["per_second"] > 0
        assert 0 < one["call_ms"] <= one["longest_call_ms"]
        assert 0 <= one["redis_busy"] <= 1
        assert 0 <= one["this_process_busy"] <= 1
        assert one["limit"] in ("redis", "round_trip", "bandwidth", "this_process", "others")


@pytest.mark.parametrize(
    "conf",
    [{"task_protocol": 1}, {"task_compression": "gzip"}, {"task_serializer": "pickle"}],
    ids=str,
)
def test_the_messages_are_as_the_app_makes_them(delayq_app, url, redis, conf, arrived):
    app = delayq_app(url, **conf)

    bench.run(app.delayq, FEW, nothing)
    app.send_task(bench.TASK, (42,), delayq_at=LONG_AGO)
    app.delayq.hand_over()

    own, usual = json.loads(arrived[0]), json.loads(redis.lindex("celery", 0))
    for message in (own, usual):
        message["body"] = None
        message["properties"].pop("correlation_id")
        message["properties"].pop("delivery_tag")
        for name in ("id", "root_id", "argsrepr", "ignore_result", "delayq_due"):
            message["headers"].pop(name, None)
    assert own == usual


def test_nobody_hears_of_a_task(app):
    heard = []

    def hear(sender, **_):
        heard.append(sender)

    before_task_publish.connect(hear)
    try:
        bench.run(app.delayq, FEW, nothing)
        app.send_task("t", delayq_at=FAR)
    finally:
        before_task_publish.disconnect(hear)

    assert heard == ["t"]


def test_of_a_store_beside_another_broker_it_says_what_it_does_not_tell(
    delayq_app, url, run, redis
):
    app = delayq_app("amqp://nobody@127.0.0.1:1//", delayq_url=url)

    lines = run("bench", "--tasks", f"{FEW}", app=app).output.splitlines()
    facts = json.loads(run("bench", "--tasks", f"{FEW}", "--json", app=app).output)

    assert "tasks/s to lists of the store's Redis." in lines[6]
    assert lines[-1].startswith("The tasks of this app go on to another broker")
    assert facts["direct"] is False
    assert redis.keys("*") == []


@pytest.mark.parametrize("tasks", ["999", "1000001", "many", "1e5"])
def test_a_number_of_tasks_out_of_range_is_an_error_of_usage(run, tasks):
    assert run("bench", "--tasks", tasks).exit_code == 2


def test_a_scanner_beside_it_does_not_count_as_alive_afterwards(app, redis):
    bench.run(app.delayq, FEW, nothing)

    with closing(app.delayq.services.engine()):
        assert app.delayq.counts().scanners == 0


def test_progress_is_for_a_terminal_only(run):
    assert run("bench", "--tasks", f"{FEW}").stderr == ""


def test_on_a_terminal_progress_is_shown_beside_the_output(url, tmp_path):
    (tmp_path / "shop.py").write_text(
        f"from celery import Celery\nfrom celery_delayq import DelayQ\n"
        f"app = Celery('shop', broker={url!r})\ndelayq = DelayQ(app)\n",
        encoding="utf-8",
    )
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "celery", "-A", "shop", "delayq", "bench", "--json"]

    done = subprocess.run(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, timeout=60, check=True,
        env={**os.environ, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    os.close(theirs)
    shown = os.read(ours, 65536)
    os.close(ours)

    assert shown.startswith(b"\r\x1b[?25l") or b"measuring" in shown
    assert b"%" in shown
    assert json.loads(done.stdout)["hand_over"]["tasks"] > 0


def test_each_step_is_called_on_own_keys_only(app, before):
    used = set()
    before(Scripts, "call", lambda scripts, _name: used.add(scripts.keys["due"]))

    bench.run(app.delayq, FEW, nothing)

    assert len(used) == 1
    assert used.pop().startswith("{delayq:bench-")
