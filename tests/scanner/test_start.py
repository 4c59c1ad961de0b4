"""A scanner's log at its first look; and its stop, after which it claims nothing more."""

import logging
import threading

import pytest

from celery_delayq.core.handover import scanner
from celery_delayq.errors import StoreDiffers, StoreUnavailable
from tests.app.support import FAR, LONG_AGO
from tests.scanner.fakes import START_MS
from tests.support.places import take
from tests.support.shards import each
from tests.support.waiting import PATIENCE, eventually, interrupt

pytestmark = pytest.mark.core


EVICTS = (
    "the store's Redis deletes waiting tasks when its memory is full, as its maxmemory-policy is "
    "allkeys-lru; set noeviction"
)
KEEPS_NOTHING = (
    "the store's Redis loses waiting tasks when it restarts, as it has neither an append-only file "
    "nor save points; set appendonly yes"
)


EVICTING = ("--maxmemory-policy", "allkeys-lru")
LIMIT = ("--maxmemory", "100mb")
KEPT = ("--appendonly", "yes")


@pytest.fixture
def said(caplog):
    """The log lines of scanners' starts so far, and the warnings."""
    caplog.set_level(logging.INFO, scanner.__name__)

    def said():
        records = [one for one in caplog.records if one.name == scanner.__name__]
        return tuple(
            [one.getMessage() for one in records if one.levelno == level]
            for level in (logging.INFO, logging.WARNING)
        )

    return said


def test_an_empty_store_is_one_line(house, said, redis_server):
    made = house()
    made.start_asleep()
    [scanner] = made.delayq.services.entries.scanners()
    name, url = scanner.name, redis_server.url()
    assert said()[0] == [
        (
            f"scanner {name} started: store {url}, prefix delayq, hands over directly; "
            "0 waiting, 0 overdue"
        )
    ]


@pytest.mark.operations
def test_waiting_tasks_are_counted_before_any_is_handed_over(house, said):
    made = house()
    app, delayq = made.delayq.app, made.delayq
    delayq.pause(queue="mail")
    delayq.pause(task="t")
    for queue, due in (("mail", LONG_AGO), ("celery", LONG_AGO), ("celery", FAR)):
        app.send_task("u", queue=queue, delayq_at=due)
    delayq.hand_over()
    app.send_task("u", delayq_at=LONG_AGO)
    made.start_asleep()
    [line] = said()[0]
    assert line.endswith("; 2 waiting, 1 overdue; paused: task t, queue mail (1 due)")


@pytest.mark.operations
def test_tasks_that_come_back_are_not_called_paused(house, said):
    made = house()
    made.delayq.pause(queue="mail")
    for _ in range(2):
        made.delayq.app.send_task("u", queue="mail", delayq_at=LONG_AGO)
    made.delayq.hand_over()
    made.delayq.resume(queue="mail", rate=0.001)
    made.start_asleep()
    assert "paused" not in said()[0][0]


def test_the_log_has_the_number_of_dead_tasks(house, said):
    made = house()
    take(made.delayq, "dead", made.task.delay_until(LONG_AGO).id)
    made.start_asleep()
    assert said()[0][0].endswith("; 0 waiting, 0 overdue, 1 dead")


def test_another_broker_is_named_and_no_password(house, start_redis, said):
    server = start_redis()
    server.client().execute_command("ACL", "SETUSER", "u", "on", ">hunter2", "~*", "&*", "+@all")
    url = server.url(3).replace("//", "//u:hunter2@")
    made = house(delayq_url=url, delayq_prefix="shop")
    made.start()
    [line] = eventually(lambda: said()[0])
    assert (
        f" store {server.url(3)}, prefix shop, relays to the broker redis, database 0 on " in line
    )
    assert made.server.url().split("/")[2] in line
    assert "hunter2" not in line


@pytest.mark.operations
def test_a_right_that_is_missing_for_the_count_holds_up_nothing(house, start_redis, said):
    server = start_redis()
    server.client().execute_command(
        "ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-zlexcount"
    )
    made = house(server.url().replace("//", "//u:p@"))
    made.client = server.client()
    made.delayq.pause(queue="mail")
    result = made.task.delay_for(0)
    made.start()
    assert made.next_arrival()[0] == result.id
    [line] = said()[0]
    assert "; waiting tasks unknown: read failed: " in line


def test_a_scanner_that_its_store_refuses_says_so_to_who_started_it(house, said, caplog):
    made = house()
    made.client.hset(each("meta")[0], mapping={"schema": "999", "shards": len(each("meta"))})
    scanner = made.start()
    with pytest.raises(StoreDiffers, match="the store has layout '999', this process '1'; "):
        scanner.wait_for_first_scan(PATIENCE)
    assert said() == ([], [])
    assert "the store has layout '999', this process '1'; " in caplog.text


def test_a_scanner_that_is_refused_later_was_not_refused_its_start(house, caplog):
    made = house(delayq_safety_interval=0.1)
    scanner = made.start_asleep()
    made.client.flushall()
    made.client.hset(each("meta")[0], mapping={"schema": "999", "shards": len(each("meta"))})
    eventually(lambda: "the store has layout '999'" in caplog.text)
    scanner.wait_for_first_scan(10)


# Tasks that may be lost.


@pytest.fixture
def warned(start_redis, house, said):
    """A scanner's warnings after some passes."""

    def warned(*config, rights=()):
        server = start_redis(*config)
        url = server.url()
        if rights:
            server.client().execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", *rights)
            url = url.replace("//", "//u:p@")
        made = house(url, delayq_safety_interval=0.1)
        made.client = server.client()
        made.start_asleep()
        for _ in range(3):
            result = made.task.delay_for(0)
            assert made.next_arrival()[0] == result.id
        return said()[1]

    return warned


CONFIGS = {
    "it evicts and keeps nothing": ((*EVICTING, *LIMIT), [EVICTS, KEEPS_NOTHING]),
    "noeviction": ((*LIMIT, *KEPT), []),
    "no right to INFO": ((*EVICTING, *LIMIT), [], "-info"),
    "no right to CONFIG": ((*EVICTING, *LIMIT), [EVICTS], "-config"),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_each_way_to_lose_tasks_that_the_user_may_ask_for_is_warned_of_once(warned, config):
    options, warnings, *missing = config
    assert warned(*options, rights=("+@all", *missing) if missing else ()) == warnings


# After a stop the scanner claims nothing more, and closes everything.


def test_a_stop_between_batches_moves_nothing_afterwards(world):
    made = world(batch_size=10)
    made.steps.due = [START_MS] * 100
    made.steps.on_move = lambda: made.log.count("hand_over") == 3 and made.scanner.stop()
    made.run(waits=2)
    assert len(made.steps.moved) == 30
    assert made.log == [
        *["hand_over"] * 3,
        "interrupt",
        "wait",
        "close relay",
        "leave",
        "close wakeup",
    ]
    assert made.waits == [pytest.approx(0, abs=0.05)]


def test_a_stop_during_a_wait_starts_no_pass(world):
    made = world()
    made.wakeup.on_wait = made.scanner.stop
    made.run(waits=5)
    assert made.log.count("hand_over") == 1


def test_a_stop_during_a_backoff_starts_no_pass(world):
    made = world()

    def fail():
        made.scanner.stop()
        raise StoreUnavailable("hand_over", "refused")

    made.steps.on_move = fail
    made.run(waits=5)
    assert made.log.count("hand_over") == 1


def test_a_relay_is_told_of_a_stop(world):
    made = world()
    made.steps.relay = [START_MS]
    told = []

    def batch(stopping):
        told.append(stopping())
        made.scanner.stop()
        told.append(stopping())
        return 1

    made.relay.batch = batch
    made.run()
    assert told == [False, True]
    assert made.log.count("hand_over") == 1


@pytest.mark.parametrize("error", [StoreUnavailable("leave", "gone"), RuntimeError("boom")])
def test_an_end_without_redis_closes_the_rest(world, error):
    made = world()

    def leave():
        raise error

    made.steps.leave = leave
    made.run()
    assert made.log[-2:] == ["close relay", "close wakeup"]


@pytest.mark.parametrize("starts", [0, 1])
def test_a_scanner_that_does_not_run_is_stopped_without_an_error(house, starts):
    made = house()
    scanner = made.start_asleep() if starts else made.delayq.scanner()
    scanner.stop()
    scanner.stop()


def test_a_stop_waits_for_the_thread_and_the_scanner_no_longer_counts_as_alive(house):
    made = house()
    before = set(threading.enumerate())
    scanner = made.start_asleep()
    assert made.delayq.counts().scanners == 1
    scanner.stop(PATIENCE)
    assert set(threading.enumerate()) - before == set()
    assert made.delayq.counts().scanners == 0


@pytest.mark.operations
def test_stop_in_the_middle_of_many_batches_leaves_the_rest_in_the_store(house, between):
    made = house(between.url(), delayq_batch_size=1)
    made.delayq.schedule_many(made.task, [((), {})] * 400, at=1_000_000_000)
    stopping = threading.Event()

    def held_up():
        assert between.asked["hand_over"] <= 100 or stopping.wait(PATIENCE)

    between.before("hand_over", held_up)
    scanner = made.start()
    eventually(lambda: between.asked["hand_over"] > 100)
    scanner.stop(0)
    stopping.set()
    scanner.stop(PATIENCE)
    moved = len(made.arrived())
    assert 0 < moved < 400
    assert made.delayq.counts().scheduled == 400 - moved


# A scanner whose thread was ended goes on in another one, under a name that says so.


def end_thread(made):
    """Let SystemExit come up in the thread of a sleeping scanner, and wake it."""
    [thread] = [one for one in threading.enumerate() if one.name == "delayq-scanner"]
    interrupt(thread, SystemExit)
    made.task.delay_for(0)


def test_a_scanner_whose_thread_ended_is_one_still_with_another_name_and_channel(house, limits):
    limits(thread_first_s=0.01)
    made = house(delayq_safety_interval=300)
    made.delayq.services.hooks.restarted = (restarted := []).append
    made.start_asleep()
    [before] = made.delayq.services.entries.scanners()

    end_thread(made)

    made.next_arrival()
    [there] = made.delayq.services.entries.scanners()
    assert (there.name, there.restarts) == (f"{before.name}-1", 1)
    assert restarted == [there.name]
    [channel] = made.client.pubsub_channels("*wake:*")
    assert channel.decode().endswith(there.name)
