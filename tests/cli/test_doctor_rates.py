"""`delayq doctor --rates`: it measures, adds up, and leaves everything as it was."""

import contextlib
import json
import os
import pty
import subprocess
import sys
from types import SimpleNamespace

import pytest

from celery_delayq.cli.doctor import report
from celery_delayq.doctor import measure as measuring
from celery_delayq.doctor.measure import ONE_BY_ONE, measure
from celery_delayq.store import Engine, Entries, ScratchKeys
from celery_delayq.store.scripts import Scripts
from tests.app.support import FAR, LONG_AGO

FEW = 1000
STEPS = ("schedule_one", "cancel_one", "schedule_many", "hand_over")
TITLES = (
    "schedule one by one", "cancel one by one", "schedule in bulk", "hand over", "round trip",
    "a waiting task",
)  # fmt: skip


def nothing(_):
    """Nobody looks on."""


def own_list(scripts):
    return scripts.keys["due"].replace(":due", ":list")


def content(redis):
    return {key: (redis.dump(key), redis.ttl(key) > 1000) for key in redis.keys("*")}


def test_it_says_what_to_expect_and_leaves_no_key_behind(redis, said, before):
    seen = set()
    before(ScratchKeys, "tidy", lambda *_: seen.update(redis.keys("*")))

    lines = said("doctor", "--rates", "--tasks", f"{FEW}")

    assert tuple(line.partition("  ")[0] for line in lines[:6]) == TITLES
    assert lines[6:] == ["What Celery does to make messages comes on top of scheduling."]
    assert seen
    assert redis.keys("*") == []


def test_json_is_one_object_with_every_figure(said):
    [line] = said("doctor", "--rates", "--tasks", f"{FEW}", "--json")
    facts = json.loads(line)

    assert set(facts) == {"direct", "round_trip_ms", "memory_bytes_per_task", *STEPS}
    assert facts["direct"] is True
    assert facts["round_trip_ms"] > 0
    assert 300 < facts["memory_bytes_per_task"] < 700
    for step in STEPS:
        assert set(facts[step]) == {"per_second", "limit"}
        assert facts[step]["limit"] in ("redis", "round_trip", "this_process")
        assert facts[step]["per_second"] > 0


def test_its_keys_are_named_after_the_app_s_and_no_two_runs_share_any(
    delayq_app, url, redis, before
):
    seen = set()
    before(ScratchKeys, "tidy", lambda *_: seen.update(redis.keys("*")))
    delayq = delayq_app(url, delayq_prefix="shop").delayq

    for _ in range(2):
        measure(delayq.services, FEW, nothing)

    assert all(key.startswith(b"{shop:doctor-") for key in seen)
    assert len({key.partition(b"}")[0] for key in seen}) == 2


def test_each_step_is_called_on_own_keys_only(app, before):
    used = set()
    before(Scripts, "call", lambda scripts, _name: used.add(scripts.keys["due"]))

    measure(app.delayq.services, FEW, nothing)

    assert len(used) == 1
    assert used.pop().startswith("{delayq:doctor-")


def test_what_others_have_in_redis_is_untouched(app, redis, said):
    redis.lpush("celery", "a task in its queue")
    redis.set("foreign", "value", ex=5000)
    for number in range(20):
        app.send_task("t", delayq_at=(LONG_AGO, FAR)[number % 2])
    was = content(redis)

    said("doctor", "--rates", "--tasks", f"{FEW}")

    assert content(redis) == was


def test_the_app_s_own_scanners_and_lists_see_nothing_of_it(app, before):
    seen = []

    def look(*_):
        seen.append(
            (app.delayq.counts().scheduled, list(app.delayq.tasks()), app.delayq.hand_over())
        )

    before(ScratchKeys, "memory", look)

    measure(app.delayq.services, FEW, nothing)

    assert seen == [(0, [], 0)]


def test_its_scanner_does_not_count_as_alive_afterwards(app):
    measure(app.delayq.services, FEW, nothing)

    with contextlib.closing(app.delayq.services.engines()[0]):
        assert app.delayq.counts().scanners == 0


def test_each_task_is_scheduled_and_then_cancelled_or_handed_over(app, redis, before):
    scheduled, cancelled, arrived = [], [], []
    before(Entries, "schedule", lambda _, new: scheduled.append([one.task_id for one in new]))
    before(Entries, "cancel", lambda _, task_id: cancelled.append(task_id))
    before(ScratchKeys, "tidy", lambda own: arrived.extend(redis.lrange(own.list, 0, -1)))

    measure(app.delayq.services, FEW, nothing)

    one_by_one, in_bulk = scheduled[:ONE_BY_ONE], scheduled[ONE_BY_ONE:]
    assert one_by_one == [[task_id] for task_id in cancelled]
    assert [len(ids) for ids in in_bulk] == [200] * (FEW // 200)
    assert len(set().union(*in_bulk)) == FEW
    assert len([message for message in arrived if message]) == FEW


@pytest.mark.parametrize("batch_size", [7, 500])
def test_it_hands_over_as_the_app_s_scanners_do(delayq_app, url, before, batch_size):
    calls = []
    before(Engine, "hand_over", calls.append)

    measure(delayq_app(url, delayq_batch_size=batch_size).delayq.services, FEW, nothing)

    assert len(calls) == -(-FEW // batch_size)


def test_what_arrived_does_not_pile_up(app, redis, before):
    lengths = []
    before(
        Engine, "hand_over", lambda engine: lengths.append(redis.llen(own_list(engine._scripts)))
    )

    measure(app.delayq.services, FEW, nothing)

    assert lengths == [1] * (FEW // 200)


def test_what_a_killed_process_leaves_behind_goes_by_itself(delayq_app, url, redis, before):
    # No generation of answers ends meanwhile: the next has no end before it is tidied.
    app, seen = delayq_app(url, delayq_timeout=60), []

    def look(*_):
        seen.append({redis.ttl(key) for key in redis.keys("{delayq:doctor-*")})

    before(Entries, "cancel", look)
    before(Engine, "hand_over", look)
    before(ScratchKeys, "__exit__", look)

    measure(app.delayq.services, 20_000, nothing)

    assert len(seen) == ONE_BY_ONE + 20_000 // 200 + 1
    assert all(lives and min(lives) > 0 and max(lives) <= 600 for lives in seen)


def test_what_arrives_goes_by_itself_at_once(app, redis, before):
    lives = []
    before(ScratchKeys, "tidy", lambda own: lives.append(redis.ttl(own.list)))

    measure(app.delayq.services, FEW, nothing)

    # -2: there is no list, -1: it has no time to live.
    assert lives[0] == -2
    assert min(lives[1:]) > 0


def test_its_entries_are_as_large_as_those_of_a_usual_task(app, before):
    records = []
    before(Entries, "schedule", lambda _, new: records.append(new[0].record))

    measure(app.delayq.services, FEW, nothing)
    # The first one of a task is kept whole; those behind it share a template.
    for _ in range(2):
        app.send_task("shop.remind", (42,), delayq_at=FAR)

    own, usual = records[0], records[-1]
    assert len(own.body) == pytest.approx(len(usual.body), rel=0.1)
    assert len(own.template) == pytest.approx(len(usual.template), rel=0.1)


def test_progress_is_told_call_by_call(app):
    told = []

    measure(app.delayq.services, FEW, told.append)

    assert sum(told) == 3 * ONE_BY_ONE + 2 * FEW


@pytest.mark.parametrize(
    ("call", "own", "trip", "limit"),
    [
        (0.010, 0.001, 0.001, "redis"),
        (0.010, 0.006, 0.003, "this_process"),
        (0.020, 0.001, 0.018, "round_trip"),
        # Most of a round trip on loopback is this process's own work.
        (0.010, 0.008, 0.009, "this_process"),
        # A clock that is coarser than the calls adds up to more than there was.
        (0.010, 0.012, 0.001, "this_process"),
    ],
)
def test_the_longest_part_of_a_call_limits(monkeypatch, call, own, trip, limit):
    now = [0, 0]
    clock = SimpleNamespace(perf_counter=lambda: now[0], process_time=lambda: now[1])
    monkeypatch.setattr(measuring, "time", clock)

    def act(left):
        now[0], now[1] = now[0] + call, now[1] + own
        return min(left, 2)

    step = measuring._step(SimpleNamespace(tidy=lambda: None), nothing, trip, act, 10)

    assert step.limit == limit
    assert step.per_second == pytest.approx(2 / call)


def test_the_round_trip_is_what_the_first_calls_took(app, monkeypatch):
    trips, step = [], measuring._step

    def noted(scratch, progress, trip, *rest):
        trips.append(trip)
        return step(scratch, progress, trip, *rest)

    monkeypatch.setattr(measuring, "_step", noted)

    measured = measure(app.delayq.services, FEW, nothing)

    assert trips[0] == 0
    assert [round(trip * 1000, 3) for trip in trips[1:]] == [measured.round_trip_ms] * 4


def test_of_a_store_beside_another_broker_it_says_what_it_does_not_tell(delayq_app, url):
    app = delayq_app("amqp://nobody@127.0.0.1:1//", delayq_url=url)

    measured = measure(app.delayq.services, FEW, nothing)

    assert measured.direct is False
    assert [*report(measured)][-1] == (
        "This app's tasks go on to another broker, at its pace; that was not measured."
    )


@pytest.mark.parametrize("tasks", ["999", "1000001", "many", "1e5"])
def test_a_number_of_tasks_out_of_range_is_an_error_of_usage(run, tasks):
    assert run("doctor", "--rates", "--tasks", tasks).exit_code == 2


def test_progress_is_for_a_terminal_only(run):
    assert run("doctor", "--rates", "--tasks", f"{FEW}").stderr == ""


def test_on_a_terminal_progress_is_shown_beside_the_output(url, tmp_path):
    (tmp_path / "shop.py").write_text(
        f"from celery import Celery\nfrom celery_delayq import DelayQ\n"
        f"app = Celery('shop', broker={url!r})\ndelayq = DelayQ(app)\n",
        encoding="utf-8",
    )
    ours, theirs = pty.openpty()
    words = ["-m", "celery", "-A", "shop", "delayq", "doctor", "--rates", "--json"]
    command = [sys.executable, *words]

    done = subprocess.run(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, timeout=60, check=True,
        env={**os.environ, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    os.close(theirs)
    shown = os.read(ours, 65536)
    os.close(ours)

    assert b"measuring" in shown
    assert b"%" in shown
    assert json.loads(done.stdout)["hand_over"]["per_second"] > 0
