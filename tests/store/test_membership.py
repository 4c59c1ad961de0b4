"""Before they write, a store's processes agree on the settings that have to be the same for all."""

import logging
from dataclasses import replace

import pytest

from celery_delayq.core import clock
from celery_delayq.core.servers.connection import Connection
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.core.store import Entries, Membership, calls
from celery_delayq.core.store import membership as registration
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.keys import Keys
from celery_delayq.core.store.membership import Registration
from celery_delayq.core.store.record import EVERYTHING
from celery_delayq.core.store.scripts import Scripts
from celery_delayq.errors import StoreDiffers, StoreError, StoreUnavailable
from tests.store import requests
from tests.store.support import FAR_MS, NOW_MS, SETTINGS, TIMEOUT_MS
from tests.support.ports import free_port

OURS = Membership("redis, database 0", "red:6379")
THEIRS = replace(OURS, broker="amqp, virtual host /", hosts="rabbit:5672")


def meta(store, name):
    return store.raw.hget(store.keys["meta"], name)


def joined(store, membership, *, scanner=False, **settings):
    return requests.join(store, membership, scanner=scanner, **settings)


def known(store, *names):
    return tuple((meta(store, name) or b"").decode() for name in names)


@pytest.fixture
def theirs(store):
    """A scanner of our broker is alive."""
    joined(store, OURS, scanner=True)
    beat(store)


def beat(store):
    """Let a scanner be alive."""
    store.raw.zadd(store.keys["scanners"], {"somebody": requests.now_us(store) // 1000 + 15_000})


def test_the_first_says_what_it_is_and_the_others_find_it(store):
    names = ("schema", "shards", "broker", "hosts", "timeout")
    joined(store, OURS, scanner=True)
    said = known(store, *names)
    assert said == (registration.SCHEMA, "1", OURS.broker, OURS.hosts, "30000")
    joined(store, OURS)
    assert known(store, *names) == said


def test_the_longest_time_out_of_all_counts(store):
    for timeout, greatest in ((5.0, 5000), (0.5, 5000), (7.25, 7250), (5.0, 7250)):
        joined(store, OURS, timeout=timeout)
        assert int(meta(store, "timeout")) == greatest


def test_joining_tells_the_time_and_the_name_that_the_store_keeps(store):
    store.set_us(NOW_MS * 1000 + 7)
    told = Registration(store.scripts, OURS).join()
    assert told == (NOW_MS * 1000 + 7, meta(store, "store").decode())
    assert Registration(store.scripts, OURS).join() == told


# Differences.


def differing(store, monkeypatch, what):
    """A caller's entries and a scanner, of a process with other settings."""
    joined(store, store.membership)
    if what == "layout":
        monkeypatch.setattr(registration, "SCHEMA", "999")
    else:
        store.set(shards=2)
    return Entries([store.scripts], store.membership), store.steps()


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("layout", "the store has layout '{}', this process '999'; "),
        ("delayq_shards", "the store has delayq_shards '1', this process '2'; "),
    ],
)
def test_a_process_that_differs_is_refused_and_has_written_nothing(
    store, monkeypatch, what, sentence
):
    store.schedule("a", NOW_MS)
    schema = registration.SCHEMA
    entries, shard_steps = differing(store, monkeypatch, what)
    before = store.contents(all_keys=True)
    for step in (lambda: entries.change("a", Removal()), shard_steps.hand_over):
        with pytest.raises(StoreDiffers) as caught:
            step()
        assert str(caught.value).startswith(sentence.format(schema))
        assert (caught.value.name, isinstance(caught.value, StoreError)) == (what, True)
        assert store.contents(all_keys=True) == before
    assert not isinstance(caught.value, StoreUnavailable)


def process(store, membership, kind, **settings):
    """Join as a scanner does, or with a caller's first change."""
    if kind == "scanner":
        joined(store, membership, scanner=True, **settings)
    else:
        Entries([store.scripts_with(**settings)], membership).change("none", Removal())


def schedule(store, membership, due_ms=FAR_MS):
    """Schedule a task in a process of its own."""
    store.entries = Entries([store.scripts], membership)
    store.schedule("a", due_ms)


KINDS = pytest.mark.parametrize("kind", ["scanner", "caller"])
ANOTHER = "the store has broker 'redis, database 0', this process 'amqp, virtual host /'; "


@KINDS
@pytest.mark.parametrize("first", ["scanner", "caller"])
def test_a_process_with_another_broker_is_refused_while_a_task_is_there(store, kind, first):
    process(store, OURS, first)
    schedule(store, OURS)
    before = store.contents(all_keys=True)
    for _ in range(2):
        with pytest.raises(StoreDiffers) as caught:
            process(store, THEIRS, kind, timeout=99.0, history=5, remember=(60, 10_000))
        assert str(caught.value) == (
            f"{ANOTHER}give it a delayq_prefix of its own, or the broker_url of the others; if the "
            "broker has moved, dump the waiting tasks, and load them under another prefix"
        )
        assert store.contents(all_keys=True) == before
    assert meta(store, "broker").decode() == OURS.broker


@KINDS
@pytest.mark.usefixtures("theirs")
def test_a_process_with_another_broker_is_refused_while_a_scanner_is_alive(store, kind):
    with pytest.raises(StoreDiffers, match=f"^{ANOTHER}"):
        process(store, THEIRS, kind)
    store.set_ms(NOW_MS + 15_001)
    process(store, THEIRS, kind)
    assert known(store, "broker") == (THEIRS.broker,)


@KINDS
def test_a_process_that_joined_before_learns_that_the_empty_store_has_another_broker(store, kind):
    shop = Entries([store.scripts], OURS)
    shop.change("none", Removal())
    name = meta(store, "store")
    process(store, THEIRS, kind)
    assert meta(store, "store") != name
    schedule(store, THEIRS)
    with pytest.raises(StoreDiffers, match="broker"):
        shop.change("none", Removal())


@KINDS
def test_a_scanner_that_stood_still_learns_that_too(store, kind, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    store.membership = OURS
    shard_steps = store.steps(alive=15.0)
    shard_steps.hand_over()
    now[0] += 16
    store.set_ms(NOW_MS + 16_000)
    process(store, THEIRS, kind)
    schedule(store, THEIRS, NOW_MS)
    with pytest.raises(StoreDiffers, match="broker"):
        shard_steps.hand_over()
    assert store.entries.find("a") is not None


def test_a_store_of_several_shards_keeps_its_broker(store):
    joined(store, OURS, shards=3)
    for scanner in (False, True):
        with pytest.raises(StoreDiffers, match=f"^{ANOTHER}"):
            joined(store, THEIRS, scanner=scanner, shards=3)


@pytest.mark.usefixtures("theirs")
def test_scanners_of_one_broker_may_know_it_by_different_names(store, caplog):
    joined(store, replace(OURS, hosts="10.0.0.1:6379"), scanner=True)
    assert "10.0.0.1:6379" in caplog.text
    assert known(store, "hosts") == ("10.0.0.1:6379",)


def test_the_broker_s_location_is_that_of_the_last_scanner(store, caplog):
    moved = replace(OURS, hosts="blue:6379")
    joined(store, OURS, scanner=True)
    joined(store, moved)
    assert known(store, "hosts") == (OURS.hosts,)
    caplog.clear()
    joined(store, moved, scanner=True)
    assert known(store, "hosts") == ("blue:6379",)
    # No other scanner is alive, so no process differs.
    assert caplog.messages == []


def test_a_look_tells_the_store_s_broker_where_it_is_another_one(store):
    looks = [
        Registration(store.scripts, one) for one in (OURS, THEIRS, replace(OURS, hosts="blue:1"))
    ]
    assert [one.check_membership() for one in looks] == ["", "", ""]
    joined(store, OURS)
    assert [one.check_membership() for one in looks] == ["", "redis, database 0", ""]
    joined(store, OURS, scanner=True)
    theirs = "redis, database 0 on red:6379"
    assert [one.check_membership() for one in looks] == ["", theirs, theirs]


def test_a_caller_never_says_on_which_hosts_the_broker_is_or_which_app_s_the_store_is(store):
    joined(store, replace(OURS, app="web"))
    assert known(store, "hosts", "app") == ("", "")


def test_a_caller_that_knows_the_broker_by_another_name_is_warned_once_and_served(store, caplog):
    joined(store, OURS, scanner=True)
    caplog.set_level(logging.WARNING)
    entries = Entries([store.scripts], replace(OURS, hosts="rabbit.internal:6379"))
    for _ in range(3):
        entries.join()
    entries.change("a", Removal())
    (message,) = [one for one in caplog.messages if "broker" in one]
    assert message == (
        "the scanners of this store reach the broker, redis, database 0, on red:6379, this process "
        "on rabbit.internal:6379; if these are two brokers, give each app its own delayq_prefix"
    )


# Two apps.


@pytest.mark.parametrize(
    ("theirs", "ours", "warnings"),
    [("shop", "billing", 1), ("shop", "shop", 0), ("shop", "", 0), ("", "billing", 0)],
)
def test_a_scanner_of_another_app_is_warned_once(store, caplog, theirs, ours, warnings):
    joined(store, replace(OURS, app=theirs), scanner=True)
    beat(store)
    member = joined(store, replace(OURS, app=ours), scanner=True)
    member.join()
    said = [one for one in caplog.messages if "to the app" in one]
    assert len(said) == warnings
    for one in said:
        assert one.startswith(
            "the scanners of this store belong to the app shop, this one belongs to the app "
            "billing: "
        )
        assert "delayq_prefix" in one
    assert (meta(store, "app") or b"").decode() == (theirs or ours)


def test_a_caller_with_the_store_s_broker_is_served_without_a_word_whatever_its_app(store, caplog):
    joined(store, replace(OURS, app="shop"), scanner=True)
    beat(store)
    for app in ("shop", "web"):
        joined(store, replace(OURS, app=app))
    assert caplog.messages == []
    assert meta(store, "app") == b"shop"


def test_an_app_takes_over_where_no_scanner_of_the_former_one_is_alive(store, caplog):
    joined(store, replace(OURS, app="shop"), scanner=True)
    joined(store, replace(OURS, app="billing", hosts="elsewhere:6379"), scanner=True)
    assert (meta(store, "app"), meta(store, "hosts")) == (b"billing", b"elsewhere:6379")
    assert not any("to the app" in one for one in caplog.messages)


# An emptied store, and an unreachable one.


@pytest.mark.parametrize(
    ("alive_ms", "is_warned"), [(None, True), (-60_001, True), (-60_000, False), (15_000, False)]
)
def test_a_process_that_schedules_after_a_minute_without_a_scanner_is_warned_once(
    store, caplog, limits, alive_ms, *, is_warned
):
    limits(silent_ms=60_000)
    if alive_ms is not None:
        until_ms = requests.now_us(store) // 1000 + alive_ms
        store.raw.zadd(store.keys["scanners"], {"somebody": until_ms})
    one = Registration(store.scripts, replace(OURS, url="redis://red:6379/0"))

    for step in ("cancel", "schedule", "schedule"):
        one.join(step=step)

    warning = (
        f"no scanner is alive in the store redis://red:6379/0, prefix {store.keys.prefix}: tasks "
        "wait there until a worker with the same delayq_url and delayq_prefix is started"
    )
    assert caplog.messages == [warning] * is_warned


def test_after_flushall_a_process_joins_anew_and_its_call_goes_on(store):
    store.schedule("a", FAR_MS)
    store.raw.flushall()
    store.set_ms(NOW_MS)
    assert store.schedule("b", FAR_MS) == FAR_MS
    assert int(meta(store, "timeout")) == TIMEOUT_MS
    store.raw.flushall()
    store.set_ms(NOW_MS)
    assert store.entries.change("b", Removal())[0].value == "not_found"


@pytest.fixture
def at(store, monkeypatch):
    """Let a scanner take a step so many seconds after its first one."""
    now = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    shard_steps = store.steps(alive=15.0)

    def step(seconds):
        now[0] = seconds
        return shard_steps.hand_over()

    step(0.0)
    return step


def test_after_flushall_a_scanner_joins_with_its_next_heartbeat(store, at):
    store.raw.flushall()
    store.set_ms(NOW_MS)
    at(2.4)
    assert meta(store, "timeout") is None
    at(2.6)
    assert int(meta(store, "timeout")) == TIMEOUT_MS


# An emptied store, which a process with another number of shards joins first.


def joined_first(store):
    """The store is emptied, and a process with three shards joins it."""
    store.raw.flushall()
    store.set_ms(NOW_MS + 1000)  # not behind what its callers believe, or they would join for that
    joined(store, store.membership, shards=3)


CHANGES = {
    "schedule": lambda store: store.schedule("b", FAR_MS),
    "cancel": lambda store: store.entries.change("a", Removal()),
    "pause": lambda store: store.entries.pause(EVERYTHING, ""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_running_process_with_one_shard_changes_nothing_there(store, change):
    store.schedule("a", FAR_MS)
    assert store.entries.counts().scheduled == 1  # reading, it has checked once
    joined_first(store)
    before = store.snapshot()
    with pytest.raises(StoreDiffers, match="delayq_shards '3', this process '1'"):
        CHANGES[change](store)
    assert store.snapshot() == before


def test_a_running_scanner_with_one_shard_is_refused_at_its_next_heartbeat(store, at):
    joined_first(store)
    before = store.snapshot()
    for _ in range(2):
        with pytest.raises(StoreDiffers, match="delayq_shards"):
            at(2.6)
    assert store.snapshot() == before


@pytest.mark.parametrize("step", ["schedule", "cancel", "reschedule"])
def test_where_joining_fails_the_error_is_that_of_the_call(step):
    scripts = Scripts(Connection(Endpoint("127.0.0.1", free_port())), Keys("delayq"), SETTINGS)
    made = calls.Calls(scripts, Registration(scripts, OURS).join)
    with pytest.raises(StoreUnavailable, match=rf"^{step} failed: ") as caught:
        made.call(step)
    assert not caught.value.may_have_run


def test_of_several_shards_only_a_shard_knows_the_scanners_app_and_the_hosts(store, caplog):
    """No scanner is seen alive at the meeting place, so each one would change what it says."""
    theirs = replace(OURS, hosts="blue:1", app="two")
    place = store.scripts_with(shards=3)
    shard = Scripts(place.connection, Keys("delayq", 0, 3), place.settings)
    for scripts in (place, shard):
        Registration(scripts, replace(OURS, app="one"), scanner=True).join()
    store.raw.zadd(shard.keys["scanners"], {"somebody": 10**13})
    Registration(place, theirs, scanner=True).join()
    assert known(store, "hosts", "app") == ("", "")
    # Nor does what it said while it was the only shard make anybody warn.
    store.raw.hset(store.keys["meta"], "hosts", "green:1")
    Registration(place, OURS).join()
    assert not caplog.messages
