"""Calls, scanners and late requests while a store is resharded; and stores that cannot be."""

import contextlib
from unittest import mock

import pytest

from celery_delayq.contrib.care import migration
from celery_delayq.core.store.delivery import ScannerSteps
from celery_delayq.core.store.keys import Keys
from celery_delayq.errors import StoreError, StoreUnavailable
from tests.app.support import FAR, LONG_AGO
from tests.format.filling import NEWS, app_of
from tests.format.keys import read, write
from tests.reshard.conftest import META, contents
from tests.support.waiting import PATIENCE, eventually

# Calls, scanners, late requests and other commands while a store is resharded, and after.


@pytest.fixture
def scan():
    """Start a scanner, which stops when the test ends."""
    with contextlib.ExitStack() as stack:

        def scan(delayq):
            scanner = delayq.scanner()
            scanner.start()
            stack.callback(scanner.stop)
            scanner.wait_for_first_scan(PATIENCE)
            return scanner

        yield scan


NOW = "the store is being resharded, delayq_shards 1 to 3; until that is done, it can only be read"


def test_calls_are_refused_with_a_sentence_meanwhile_and_reads_go_on(app, during):
    delayq = app(1)
    delayq.app.send_task("t", task_id="far", delayq_at=FAR)
    delayq.app.send_task("t", task_id="due", delayq_at=LONG_AGO)
    shard_steps = ScannerSteps(delayq.services.scripts[0], delayq.services.membership)
    shard_steps.hand_over(asleep=0)
    delayq.app.send_task("t", task_id="late", delayq_at=LONG_AGO)
    done = []

    def look():
        for change in (
            lambda: delayq.app.send_task("t", task_id="new", delayq_at=FAR),
            lambda: app(1).app.send_task("t", task_id="new", delayq_at=FAR),
            lambda: delayq.cancel("far"),
            shard_steps.hand_over,
        ):
            with pytest.raises(StoreUnavailable) as error:
                change()
            assert (error.value.why, error.value.may_have_run) == (NOW, False)
        assert delayq.get("far").id == "far"
        assert delayq.counts().scheduled == 2
        (sentence,) = (one for one in delayq.health() if "shards" in one)
        assert sentence.startswith("the store is being resharded from 1 to 3 shards: no tasks are")
        assert sentence.endswith("celery -A proj delayq reshard 3, or: reshard --abort")
        done.append(True)

    assert during(delayq, 3, look)
    assert done
    assert {one.id for one in app(3).tasks()} == {"far", "late"}
    assert not [one for one in app(3).health() if "shards" in one]


def test_a_scanner_waits_and_goes_on_after_an_abort(app, during, caplog, scan, opened):
    delayq = app(1, delayq_safety_interval=1)
    delayq.app.send_task("t", task_id="far", delayq_at=FAR)
    scan(delayq)

    def look():
        eventually(lambda: NOW in caplog.text)
        assert opened(delayq).abort()

    with caplog.at_level("WARNING"), pytest.raises(StoreError, match="process has aborted it"):
        during(delayq, 3, look)
    delayq.app.send_task("t", task_id="due", delayq_at=LONG_AGO)
    eventually(lambda: delayq.handed_over("due"))


def test_the_outcome_of_a_publication_is_taken_until_leases_are_over(app, before_each, reshard):
    delayq = app(1)
    delayq.app.send_task("t", task_id="a", delayq_at=LONG_AGO, **NEWS)
    shard_steps = ScannerSteps(delayq.services.scripts[0], delayq.services.membership)
    shard_steps.hand_over()
    claimed, *_ = shard_steps.claim(1)
    slept = []

    def once(link, name, arguments):
        if name == "close" and arguments["level"] == 2:
            assert not delayq.counts().in_flight
            before_each(None)

    before_each(once)
    sleep = migration.clock.sleep

    def acks(seconds):
        slept.append(seconds)
        if seconds == migration.LOOK_AGAIN:
            shard_steps.ack(claimed)
        sleep(min(seconds, 0.001))

    with mock.patch.object(migration.clock, "sleep", acks):
        reshard(delayq, 3)
    assert slept == [0.001, migration.LOOK_AGAIN]  # the longest call first
    assert not app(3).counts().scheduled
    assert app(3).handed_over("a")


STEPS = {
    "counts": lambda delayq: delayq.counts().scheduled == 1,
    "get": lambda delayq: delayq.get("far") is not None,
    "tasks": lambda delayq: [one.id for one in delayq.tasks()] == ["far"],
    "select": lambda delayq: [one.id for one in delayq.select(all=True)] == ["far"],
    "cancel": lambda delayq: delayq.cancel("far"),
    "send": lambda delayq: delayq.app.send_task("t", task_id="new", delayq_at=FAR),
    "status": lambda delayq: delayq.status().counts.scheduled == 1,
    "health": lambda delayq: not [one for one in delayq.health() if "shards" in one],
    "check": lambda delayq: list(delayq.check()) == [],
    "dump": lambda delayq: any("far" in str(line) for line in delayq.dump()),
    "hand over": lambda delayq: delayq.hand_over() == 0,
    "pause": lambda delayq: delayq.pause(queue="news") is None,
}


@pytest.mark.parametrize("step", STEPS)
def test_a_process_with_the_old_number_meets_the_new_one_and_says_so(app, reshard, caplog, step):
    delayq, now = app(1), app(3)
    delayq.app.send_task("t", task_id="far", delayq_at=FAR)
    assert list(delayq.tasks())
    reshard(now, 3)

    with caplog.at_level("WARNING"):
        assert STEPS[step](delayq)

    told = "the store has 3 shards, so this process uses 3 from now on, instead of 1; set "
    assert [one for one in caplog.messages if "shards" in one] == [f"{told}delayq_shards to 3"]
    assert {one.id for one in delayq.tasks()} == {one.id for one in now.tasks()}


def test_a_process_whose_number_comes_back_is_not_refused(app, moved):
    delayq = app(1)
    delayq.app.send_task("t", task_id="far", delayq_at=FAR)
    for _ in moved(delayq, 3, 1, 2):
        assert [one.id for one in delayq.tasks()] == ["far"]
        assert delayq.reschedule("far", by=1)


def test_a_scanner_with_the_old_number_goes_on_over_the_new_shards(app, reshard, raw, caplog, scan):
    delayq = app(1, delayq_safety_interval=1)
    delayq.app.send_task("t", task_id="far", delayq_at=FAR)
    scanner = scan(delayq)
    with caplog.at_level("INFO"):
        reshard(app(3), 3)
        for number in range(9):  # in each shard some
            app(3).app.send_task("t", task_id=f"due{number}", delayq_at=LONG_AGO)
        eventually(lambda: raw.llen("celery") == 9)
    scanner.stop()
    assert "3 shards, so this process uses 3 from now on" in caplog.text
    assert app(3).counts().scanners == 0  # it has left


def test_a_worker_that_is_configured_otherwise_starts_with_the_store_s_number(app, raw, scan):
    app(3).app.send_task("t", task_id="due", delayq_at=LONG_AGO)
    scan(app(2))
    eventually(lambda: raw.llen("celery") == 1)


def again(one, requests, *numbers):
    """Send requests again: in order, and in reverse order."""
    links = {scripts.keys["meta"]: scripts for n in numbers for scripts in one._shards(n)}
    for meta, name, given in (*requests, *reversed(requests)):
        links[meta].call(name, **given)


@pytest.mark.usefixtures("filled")
def test_requests_that_come_again_after_the_end_change_nothing(
    app, reshard, raw, before_each, opened
):
    """From a process that was taken for dead, or over a network that repeats them."""
    requests = []
    before_each(lambda link, *rest: requests.append((link.keys["meta"], *rest)))
    reshard(app(1), 2)
    before_each(None)
    app(2).app.send_task("t", task_id="new", delayq_at=FAR)
    assert app(2).resume(queue="news")
    raw.hdel(META, "timeout")
    wanted = read(raw)
    again(opened(app(1)), requests, 1, 2)
    assert read(raw) == wanted


@pytest.fixture(params=[1, 3])
def before(request, filled, app, reshard):
    """A store with so many shards."""
    reshard(app(1), request.param)
    return app(request.param)


def test_requests_that_come_after_an_abort_change_nothing(
    before_each, before, raw, reshard, opened
):
    requests = []

    def aborts(link, name, given):
        requests.append((link.keys["meta"], name, given))
        if name == "fill_rest":
            before_each(lambda link, *rest: requests.append((link.keys["meta"], *rest)))
            opened(before).abort()

    before_each(aborts)
    with pytest.raises(StoreError, match="another process has aborted it"):
        reshard(before, 2)
    before_each(None)
    wanted = contents(raw)
    again(opened(before), requests, 1, 2, 3)
    assert contents(raw) == wanted
    before.app.send_task("t", task_id="new", delayq_at=FAR)


@pytest.mark.usefixtures("filled")
def test_a_second_command_does_the_same_work(app, reshard, raw, before_each):
    delayq, start = app(1), read(raw)
    reshard(delayq, 2)
    wanted = contents(raw)
    calls = []
    raw.flushdb()
    write(raw, start)
    before_each(lambda *call: calls.append(call))
    reshard(delayq, 2)
    for nth in range(len(calls)):
        raw.flushdb()
        write(raw, start)
        left = [nth]

        def second(*_, left=left):
            left[0] -= 1
            if left[0] < 0:
                before_each(None)
                reshard(delayq, 2)

        before_each(second)
        reshard(delayq, 2)
        assert contents(raw) == wanted, f"at call {nth} of {len(calls)}"


def test_another_number_is_refused_until_the_first_is_done(app, during, opened):
    delayq = app(1)
    delayq.app.send_task("t", task_id="far", delayq_at=FAR)

    def other():
        with pytest.raises(StoreError, match="resharded from 1 to 3 shards; finish that first"):
            opened(delayq).run(2)

    during(delayq, 3, other)
    assert app(3).get("far")


def test_a_resharded_store_has_another_secret(app, moved):
    first = app(1)
    secrets = [first.services.entries.secret()[1]]
    assert secrets == [app(1).services.entries.secret()[1]]
    secrets += [delayq.services.entries.secret()[1] for delayq in moved(first, 3, 2, 1)]
    assert len({*secrets}) == len(secrets)


# Stores that cannot be resharded, or need not be.


def test_a_task_that_waits_in_two_shards_is_named(app, reshard, raw, opened):
    delayq = app(1)
    delayq.app.send_task("t", task_id="far", delayq_at=FAR)
    reshard(delayq, 2)
    one, other = Keys("delayq", 0, 2), Keys("delayq", 1, 2)
    if not raw.exists(one["records"]):
        one, other = other, one
    write(raw, {other[name]: read(raw)[one[name]] for name in ("records", "due")})
    with pytest.raises(StoreError, match="the task far waits in two shards"):
        reshard(delayq, 1)
    assert opened(delayq).abort()


def test_a_task_without_a_place_ends_it_before_the_number_changes(app, reshard, raw, opened):
    delayq = app(1)
    delayq.app.send_task("t", task_id="far", delayq_at=FAR)
    raw.delete(Keys("delayq")["due"])
    with pytest.raises(StoreError, match="lost their place; run: reshard --abort, and then: check"):
        reshard(delayq, 3)
    assert opened(delayq).abort()
    assert delayq.get("far") is None or delayq.counts()


def test_without_memory_for_a_copy_nothing_begins(start_redis, opened):
    server = start_redis("--maxmemory-policy", "noeviction")
    with contextlib.closing(app_of(server.url())) as delayq, server.client() as raw:
        delayq.schedule_many(
            delayq.app.signature("t"), [((n,), {}, FAR, f"id-{n}") for n in range(2000)]
        )
        raw.config_set("maxmemory", raw.info("memory")["used_memory"] + 100_000)
        before = raw.hgetall(META)
        estimate = opened(delayq).estimate(3)
        with pytest.raises(StoreError, match=r"Redis lacks [\d,]+ bytes of memory"):
            opened(delayq).run(3)
        assert estimate.entries == 2000
        assert estimate.bytes > 500_000 > estimate.lacks > 0 or estimate.lacks > 0
        assert raw.hgetall(META) == before


def test_tombstones_add_to_the_estimate_of_time_and_memory(app, raw, opened):
    delayq = app(1)
    delayq.app.send_task("t", delayq_at=FAR)
    delayq.cancel(next(delayq.tasks()))
    before = opened(delayq).estimate(3)
    raw.hset(Keys("delayq")["tombstones_old"], mapping={f"left {n}": "h1" for n in range(999)})
    after = opened(delayq).estimate(3)
    assert (before.bytes, after.bytes) == (120, 120_000)
    assert after.seconds - before.seconds == pytest.approx(0.00999)


def test_a_store_that_has_the_number_or_is_not_used_yet_stays_as_it_is(app, reshard, opened):
    delayq = app(1)
    one = opened(delayq)
    assert one.shards() is None
    assert not one.run(3)
    assert not one.abort()
    delayq.app.send_task("t", task_id="far", delayq_at=FAR)
    assert not reshard(delayq, 1)


@pytest.mark.parametrize("second", ["leased", "dead", "relay", "parked"])
def test_a_task_that_a_stopped_script_left_in_two_places_is_copied_once(app, reshard, raw, second):
    delayq, keys = app(1), Keys("delayq")
    due = LONG_AGO if second == "parked" else FAR
    delayq.app.send_task("t", task_id="a", delayq_at=due)
    (member,) = raw.zrange(keys["due"], 0, 0)
    if second == "parked":
        delayq.pause(queue="celery")
        ScannerSteps(delayq.services.scripts[0], delayq.services.membership).hand_over()
        raw.zadd(keys["due"], {member: 1})
    else:
        raw.zadd(keys[second], {member: 1})
        assert [one.kind for one in delayq.check()] == ["second_place"]
    assert reshard(delayq, 3)
    assert app(3).get("a").due.timestamp() == due
    assert not list(app(3).check())
