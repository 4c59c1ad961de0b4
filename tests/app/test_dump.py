"""Dumps: what one contains, and a load, which reads it as untrusted input."""

import base64
import io
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celery_delayq.contrib.care.lines import FIELDS, LONGEST_ID, LONGEST_TEXT, read
from celery_delayq.contrib.care.load import least_size
from celery_delayq.core.store.keys import Keys, shard_of
from celery_delayq.errors import AlreadyScheduled, InvalidDump, MessageTooLarge, NotLoaded
from tests.app.support import FAR, LONG_AGO, lists
from tests.support.places import at
from tests.support.shards import SHARDS, each, keys_of

# The content of a dump, and the content of a store that was loaded from it.


@pytest.fixture
def one(delayq_app, redis_server, url):
    """An app whose tasks are relayed, so that they can be in flight."""
    return delayq_app(url, delayq_url=redis_server.url(7))


@pytest.fixture
def two(delayq_app, redis_server, url):
    return delayq_app(url, delayq_url=redis_server.url(7), delayq_prefix="two")


def through_text(delayq):
    return [json.dumps(line) for line in delayq.dump()]


def tasks_of(found):
    return {line["id"]: line for line in found if line["kind"] == "task"}


def moved(one, two):
    """Load the first store into the second; return a dump of each."""
    loaded = two.delayq.load(through_text(one.delayq))
    assert loaded, loaded
    assert not [*two.delayq.check()]
    return tasks_of(one.delayq.dump()), tasks_of(two.delayq.dump())


def test_the_first_line_says_what_it_is_and_the_last_how_many_there_are(app, redis):
    app.send_task("t", task_id="a", delayq_at=FAR)

    first, *tasks, last = app.delayq.dump()

    assert (first["kind"], first["format"], first["schema"], first["prefix"]) == (
        "dump", 1, "1", "delayq",
    )  # fmt: skip
    assert abs(first["time_ms"] - int(redis.time()[0]) * 1000) < 60_000
    assert (first["paused"], first["in_flight"], first["owed"]) == (False, 0, 0)
    assert [line["id"] for line in tasks] == ["a"]
    assert last == {"kind": "end", "tasks": 1, "unreadable": 0}


def test_waiting_tasks_keep_their_times_tags_and_order(one, two):
    for number in range(250):
        one.send_task("t", (number,), task_id=f"{number}", delayq_at=FAR, delayq_tags=["a", "ü\n"])
    one.send_task("t", task_id="late", delayq_at=FAR, delayq_late="skip", delayq_grace=0)
    one.send_task("u", task_id="keyed", delayq_at=FAR, delayq_key="k", queue="mail")

    before, after = moved(one, two)

    assert after == before
    assert [one.id for one in two.delayq.tasks()] == [one.id for one in one.delayq.tasks()]
    assert two.delayq.select(tag="ü\n").count() == 250
    assert two.delayq.select(task="t").count() == 251
    assert two.delayq.select(queue="celery").count() == 251
    assert after["late"]["grace_ms"] == 0


def fly(one, name):
    at(one.delayq, "leased", name, queue="celery", delayq_key="k")


# Under one key: while one is in flight, another may wait.
STEPS = {
    "fly": fly,
    "wait": lambda one, name: one.send_task("t", task_id=name, delayq_at=FAR, delayq_key="k"),
    "cancel": lambda one, name: one.delayq.cancel(name),
}


@pytest.mark.parametrize(
    ("steps", "holder"),
    [
        ("wait first", "first"),
        ("fly first, wait second", "second"),
        ("fly first, wait second, cancel second", "first"),
        ("fly first, fly second", "first"),
        ("fly first, fly second, wait third, cancel third", "first"),
    ],
)
def test_under_a_key_the_same_task_holds_it_after_the_load(one, two, steps, holder):
    for step in steps.split(", "):
        word, name = step.split()
        STEPS[word](one, name)

    for found in moved(one, two):
        assert [name for name, line in found.items() if line.get("holds_key")] == [holder]
    assert two.delayq.get(key="k").id == holder
    with pytest.raises(AlreadyScheduled):
        two.send_task("t", task_id="another", delayq_at=FAR, delayq_key="k")


def test_an_in_flight_task_is_loaded_as_possibly_delivered(one, two, redis):
    at(one.delayq, "leased", queue="celery")

    told = [
        [found["a"][name] for name in ("state", "attempts", "may_be_delivered")]
        for found in moved(one, two)
    ]

    assert told == [["in_flight", 1, True], ["waiting", 1, True]]
    assert two.delayq.hand_over() == 1
    ((message,),) = lists(redis).values()
    headers = json.loads(message)["headers"]
    assert (headers["delayq_attempt"], headers["delayq_redelivered"]) == (2, True)


def test_a_refused_task_waits_for_the_same_next_try(one, two):
    at(one.delayq, "refused", queue="celery", reason="no such exchange")

    before, after = moved(one, two)

    assert after == before
    assert (after["a"]["state"], after["a"]["refusals"]) == ("refused", 1)
    assert two.delayq.get("a").next_try == one.delayq.get("a").next_try
    assert two.delayq.get("a").error == "no such exchange"


def test_the_dead_are_dead_since_then_for_that_reason_and_can_be_retried(one, two):
    at(one.delayq, "dead", queue="celery", reason="NO_ROUTE \x1b[2J")

    before, after = moved(one, two)

    assert after == before
    dead = two.delayq.get("a")
    assert (dead.state.value, dead.reason) == ("DEAD", "NO_ROUTE \x1b[2J")
    assert dead.dead_since == one.delayq.get("a").dead_since
    assert two.delayq.retry("a")


@pytest.mark.parametrize("word", ["run_now", "released"])
def test_run_now_and_release_ignore_a_pause_after_the_load_too(one, two, redis, word):
    one.send_task("t", task_id="a", delayq_at=FAR)
    if word == "run_now":
        one.delayq.run_now("a")
    else:
        one.delayq.select(all=True).release()
    one.delayq.pause(all=True)

    before, after = moved(one, two)

    assert after == before
    assert after["a"][word] is True
    assert two.delayq.hand_over() == 1
    ((message,),) = lists(redis).values()
    assert bool(json.loads(message)["headers"]["eta"]) == (word == "released")


def test_pauses_and_their_tasks_are_still_paused_after_the_load(one, two):
    one.delayq.pause(queue="mail", late=True)
    one.delayq.pause(task="shop.remind\n")
    one.delayq.pause(task="back")
    one.delayq.resume(task="back", rate=1)
    one.send_task("t", task_id="a", queue="mail", delayq_at=LONG_AGO)
    one.delayq.hand_over()

    before, after = moved(one, two)

    assert (before["a"]["state"], after["a"]["state"]) == ("paused", "paused")
    assert {(one.queue, one.task, one.late) for one in two.delayq.pauses()} == {
        ("mail", None, True),
        (None, "shop.remind\n", False),
    }
    assert two.delayq.hand_over() == 0
    assert tasks_of(two.delayq.dump())["a"]["state"] == "paused"


def test_everything_can_be_paused_before_a_load(one, two):
    one.send_task("t", task_id="a", delayq_at=LONG_AGO)

    assert two.delayq.load(through_text(one.delayq), paused=True).loaded == 1

    assert two.delayq.hand_over() == 0
    two.delayq.resume(all=True)
    assert two.delayq.hand_over() == 1


@pytest.mark.parametrize("is_met", [True, False], ids=["met", "unmet"])
@pytest.mark.parametrize(("late", "is_sent"), [(False, True), (True, False)])
def test_lateness_from_a_pause_is_excused_unless_the_pause_counts_it(
    one, two, late, is_sent, is_met
):
    one.delayq.pause(queue="mail", late=late)
    one.send_task(
        "t", task_id="a", queue="mail", delayq_at=LONG_AGO, delayq_late="skip", delayq_grace=60
    )
    if is_met:
        one.delayq.hand_over()
    one.delayq.resume(queue="mail", rate=0.001)
    found = through_text(one.delayq)
    assert json.loads(found[2])["state"] == "paused"

    assert two.delayq.load(found).loaded == 1

    assert not two.delayq.pauses()
    assert two.delayq.hand_over() == is_sent


@pytest.mark.parametrize("paused", [False, True])
def test_a_pause_that_is_there_stays_as_it_is(one, two, paused):
    one.delayq.pause(all=True)
    two.delayq.pause(all=True, late=True)

    assert two.delayq.load(through_text(one.delayq), paused=paused)

    assert [pause.late for pause in two.delayq.pauses()] == [True]


def test_the_same_dump_loaded_again_adds_nothing(one, two, redis):
    one.send_task("t", task_id="a", delayq_at=FAR)
    one.send_task("t", task_id="b", delayq_at=FAR)
    found = through_text(one.delayq)
    two.delayq.load(found)
    # It is the same task, even if it was moved meanwhile.
    two.delayq.reschedule("a", FAR + 5)

    again = two.delayq.load(found)

    assert (again.loaded, again.here, bool(again)) == (0, 2, True)
    assert two.delayq.counts().scheduled == 2
    assert two.delayq.get("a").due.timestamp() == FAR + 5


def test_a_task_that_has_left_since_the_dump_does_not_come_back(one, redis):
    one.send_task("t", task_id="gone", delayq_at=LONG_AGO)
    one.send_task("t", task_id="cancelled", delayq_at=FAR)
    found = through_text(one.delayq)
    one.delayq.hand_over()
    one.delayq.cancel("cancelled")

    loaded = one.delayq.load(found)

    assert (loaded.loaded, loaded.left) == (0, 2)
    assert one.delayq.counts().scheduled == 0


@pytest.mark.parametrize("ahead_us", [0, 60_000_000], ids=["same clock", "ahead"])
def test_a_task_that_left_the_store_it_was_loaded_into_does_not_come_back(one, two, ahead_us):
    one.send_task("t", task_id="a", delayq_at=LONG_AGO)
    first, line, last = one.delayq.dump()
    found = [first, {**line, "scheduled_us": line["scheduled_us"] + ahead_us}, last]
    assert two.delayq.load(found).loaded == 1
    two.delayq.hand_over()
    again = two.delayq.load(found)
    assert (again.loaded, again.left) == (0, 1)

    two.send_task("t", task_id="a", delayq_at=FAR)  # another task now

    again = two.delayq.load(found)
    assert (again.left, again.refused) == (1, [])
    assert two.delayq.get("a").due.timestamp() == FAR


def test_a_task_scheduled_anew_under_an_id_that_left_is_another_one_and_is_loaded(one, two):
    for app in (one, two):
        app.send_task("t", task_id="a", delayq_at=LONG_AGO)
        app.delayq.hand_over()
    one.send_task("t", task_id="a", delayq_at=FAR)

    assert two.delayq.load(through_text(one.delayq)).loaded == 1


def test_an_id_of_another_task_is_refused_or_skipped_as_told(one, two):
    one.send_task("t", task_id="a", delayq_at=FAR)
    one.send_task("t", task_id="b", delayq_at=FAR)
    two.send_task("t", task_id="a", delayq_at=FAR + 1)
    found = through_text(one.delayq)

    loaded = two.delayq.load(found)
    skipped = two.delayq.load(found, skip_existing=True)

    (why,) = loaded.refused
    assert str(why) == "task 'a' was not loaded: another task has its id here"
    assert (loaded.loaded, bool(loaded)) == (1, False)
    assert (skipped.loaded, skipped.here, skipped.skipped, bool(skipped)) == (0, 1, 1, True)
    assert two.delayq.get("a").due.timestamp() == FAR + 1


def test_a_key_of_another_task_is_refused_with_the_holder(one, two):
    one.send_task("t", task_id="a", delayq_at=FAR, delayq_key="k")
    two.send_task("t", task_id="holder %:", delayq_at=FAR, delayq_key="k")

    (why,) = two.delayq.load(through_text(one.delayq)).refused

    assert isinstance(why, NotLoaded)
    assert str(why) == "task 'a' was not loaded: task 'holder %:' has its unique key here"
    assert two.delayq.get(key="k").id == "holder %:"


def test_an_unreadable_task_that_is_there_is_another_one(one, two, redis_server):
    one.send_task("t", task_id="a", delayq_at=FAR)
    two.send_task("t", task_id="a", delayq_at=FAR)
    with redis_server.client(db=7) as raw:
        records = Keys("two", shard_of("a", SHARDS), SHARDS)["records"]
        raw.hset(records, "a", b"? of another program")

    assert [one.task_id for one in two.delayq.load(through_text(one.delayq)).refused] == ["a"]


def test_a_message_that_is_too_large_for_this_app_is_refused_by_id(delayq_app, one, url):
    small = delayq_app(url, delayq_prefix="small", delayq_max_message=10_000)
    one.send_task("t", ("x" * 10_000,), task_id="a", delayq_at=FAR)

    (why,) = small.delayq.load(through_text(one.delayq)).refused

    assert isinstance(why, MessageTooLarge)


def test_a_store_takes_any_task_of_a_store_with_the_same_limit(delayq_app, url):
    one, two = (
        delayq_app(url, delayq_prefix=name, delayq_max_message=10_000) for name in ("one", "two")
    )
    for number in range(200):
        tags = ["x" * 255, "even" if number % 2 == 0 else "odd"]
        options = {"delayq_key": f"{number}{'k' * 200}", "delayq_tags": tags}
        try:
            one.send_task("t", ("x" * (5000 + 20 * number),), delayq_at=FAR, **options)
        except MessageTooLarge:
            break
    one.delayq.select(tag="even").release()

    loaded = two.delayq.load(through_text(one.delayq))

    assert (loaded.loaded, loaded.refused) == (number, [])


def test_the_size_of_a_message_is_that_of_its_body_as_it_was_sent():
    """An adopting worker counts it the same way; a body that is not text is in base64."""
    body = base64.b64encode(b"x" * 9000).decode()
    message = {"body": body, "headers": {}, "properties": {"body_encoding": "base64"}}
    assert least_size(message) == 9000
    assert least_size({**message, "properties": {}}) == 12_000


def test_many_large_ones_go_in_small_slices(one, two, monkeypatch):
    for number in range(10):
        one.send_task("t", ("x" * 100_000,), task_id=f"{number}", delayq_at=FAR)
    parts = []

    two.delayq.load(one.delayq.dump(), progress=lambda count: parts.append(count.loaded))

    assert parts[-1] == 10
    assert len(parts) > 2


def test_a_record_that_cannot_be_read_is_dumped_as_it_is(app, redis):
    app.send_task("t", task_id="good", delayq_at=FAR)
    app.send_task("t", task_id="new", delayq_at=FAR)
    # Kept whole, as the first of its kind.
    app.send_task("u", task_id="bad", delayq_at=FAR)
    redis.hset(keys_of("new")["records"], "new", b"? of another program \xff")
    record = redis.hget(keys_of("bad")["records"], "bad")
    redis.hset(keys_of("bad")["records"], "bad", record.replace(b'"body"', b'"b\xffdy"'))
    die_without_a_record(redis, "lost")

    found = [*app.delayq.dump()]

    raw = {line["id"]: line for line in found if line["kind"] == "unreadable"}
    assert base64.b64decode(raw["new"]["record"]) == b"? of another program \xff"
    assert raw["new"]["reason"] == 'record format "?" is unknown'
    assert base64.b64decode(raw["bad"]["record"]) == redis.hget(keys_of("bad")["records"], "bad")
    assert (raw["lost"]["record"], raw["lost"]["reason"]) == ("", "no record")
    assert raw.keys() == {"new", "bad", "lost"}
    assert found[-1] == {"kind": "end", "tasks": 1, "unreadable": 3}
    # The load reports each of them.
    loaded = app.delayq.load(found)
    assert {name for name, _ in loaded.unreadable} == raw.keys()
    assert (loaded.here, bool(loaded)) == (1, False)


def test_a_record_that_lost_its_template_is_dumped_as_unreadable(app, redis):
    for name in ("a", "b"):
        app.send_task("t", task_id=name, delayq_at=FAR)
    for templates in each("templates"):
        redis.delete(templates)

    kinds = {line.get("id"): line["kind"] for line in app.delayq.dump()}

    # The first message of its kind is kept whole.
    assert (kinds["a"], kinds["b"]) == ("task", "unreadable")


def test_a_dump_has_each_earlier_task_once_and_none_that_came_meanwhile(app):
    items = [((), {}, FAR, f"{number}") for number in range(1600)]
    app.delayq.schedule_many(app.signature("t"), items[:1500])
    dump = app.delayq.dump()
    found = [next(dump) for _ in range(5)]
    app.delayq.schedule_many(app.signature("t"), items[1500:])
    for number in range(1300, 1400):
        app.delayq.cancel(f"{number}")
    found += dump

    ids = [line["id"] for line in found if line["kind"] == "task"]
    assert len(ids) == len(set(ids))
    assert {f"{number}" for number in range(1300)} <= set(ids)
    if SHARDS == 1:  # with several shards, the dump begins each at its own time
        assert set(ids) <= {f"{number}" for number in range(1500)}


def test_a_task_scheduled_anew_during_the_dump_is_not_in_it(app, between):
    app.send_task("t", task_id="a", delayq_at=FAR)

    def overtake():
        is_read = between.last["dump"].endswith(b"a\r\n")  # at first it is asked for nothing
        if is_read and app.delayq.get("a").due.timestamp() == FAR:
            app.delayq.cancel("a")
            app.send_task("t", task_id="a", delayq_at=FAR + 1)
            anew.append("a")

    anew = []
    between.before("dump", overtake)

    assert tasks_of(app.delayq.dump()) == {}
    assert anew


def test_a_load_restores_tasks_that_lost_their_record_or_were_revoked(app, redis):
    for name in ("lost", "owed"):
        app.send_task("t", task_id=name, delayq_at=FAR)
    found = through_text(app.delayq)
    redis.delete(*each("records"), *each("tags"), *each("due"), *each("template_uses"))
    die_without_a_record(redis, "lost")
    redis.zadd(keys_of("owed")["outbox"], {"owed": 5})
    redis.hset(keys_of("owed")["outbox_messages"], "owed", "c0000000000000001000")

    assert app.delayq.load(found).loaded == 2

    assert app.delayq.counts().dead == 0
    assert not any(redis.exists(key) for key in (*each("outbox"), *each("outbox_messages")))
    assert app.delayq.get("lost").error == ""


def die_without_a_record(redis, name):
    redis.zadd(keys_of(name)["dead"], {b"\0" * 6 + name.encode(): 5})
    redis.hset(keys_of(name)["errors"], name, "no record")


def test_a_load_wakes_a_scanner(one, two, redis_server):
    one.send_task("t", task_id="a", delayq_at=LONG_AGO)
    names = [Keys("two", shard, SHARDS)["meta"] for shard in range(SHARDS)]
    steps_by_shard = two.delayq.services.steps_by_shard()
    for shard_steps in steps_by_shard:
        shard_steps.hand_over(asleep=60.0, relay_in=60.0)
    with redis_server.client(db=7) as raw:
        before = [raw.hget(name, "timer") for name in names]

        two.delayq.load(through_text(one.delayq))

        assert [raw.hget(name, "timer") for name in names] != before
    for shard_steps in steps_by_shard:
        shard_steps.close()


# A load reads untrusted input: it checks each line before it writes anything of that line.


@pytest.fixture
def dumped(one):
    for name in ("a", "b"):
        one.send_task("t", task_id=name, delayq_at=FAR)
    return through_text(one.delayq)


def test_a_cut_dump_is_noticed(two, dumped):
    for end in range(len(dumped)):
        with pytest.raises(InvalidDump):
            two.delayq.load(dumped[:end])
    assert two.delayq.load(dumped).here == 2


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_line_that_is_cut_is_named_by_its_number(two, dumped, place):
    dumped[place] = dumped[place][:-7]

    with pytest.raises(InvalidDump) as raised:
        two.delayq.load(dumped)

    assert raised.value.line == place + 1
    assert "cut or damaged" in str(raised.value)


def test_lines_before_a_damaged_line_are_loaded_and_nothing_of_that_line(two, dumped):
    dumped[2] = dumped[2].replace('"due_ms":', '"due_ms_":')

    with pytest.raises(InvalidDump, match=r"line 3 of the dump: it has an unknown field 'due_ms_'"):
        two.delayq.load(dumped)

    assert two.delayq.counts().scheduled == 1


def test_a_line_that_is_missing_is_noticed(two, dumped):
    del dumped[2]

    with pytest.raises(InvalidDump, match="it counts 2 tasks and 0 unreadable ones; 1 tasks"):
        two.delayq.load(dumped)


def test_empty_lines_are_nothing(two, dumped):
    assert two.delayq.load(["\n", *dumped, "", b" \n"]).loaded == 2


def test_a_line_after_the_last_line_is_refused(two, dumped):
    with pytest.raises(InvalidDump, match="line 5 of the dump: it comes after the last line"):
        two.delayq.load([*dumped, dumped[1]])


def test_a_dump_of_a_later_format_is_refused_before_anything_is_written(two, dumped):
    first = {**json.loads(dumped[0]), "format": 2, "made_by": "celery_delayq 9.9", "new": 1}

    with pytest.raises(InvalidDump) as raised:
        two.delayq.load([json.dumps(first), *dumped[1:]])

    assert str(raised.value) == (
        "line 1 of the dump: the dump has format 2, and this version reads up to 1; it was made "
        "by 'celery_delayq 9.9'"
    )
    assert two.delayq.counts().scheduled == 0


@pytest.mark.parametrize("text", ["", "[]", '{"kind": "task"}', "null", "\x1b", "[" * 100_000, 5])
def test_a_text_that_is_not_a_dump_is_refused(two, text):
    with pytest.raises(InvalidDump):
        two.delayq.load([text, text])


@pytest.mark.parametrize("kind", [io.StringIO, lambda text: io.BytesIO(text.encode())])
def test_a_file_is_loaded_like_its_lines(two, dumped, kind):
    assert two.delayq.load(kind("\n".join(dumped))).loaded == 2


@pytest.mark.parametrize("kind", [io.StringIO, lambda text: io.BytesIO(text.encode())])
def test_of_a_file_no_line_is_read_that_is_longer_than_any_message(two, dumped, kind):
    two.conf.delayq_max_message = 10_000
    file = kind("\n".join(dumped[:2]) + "\n" + "x" * 9_000_000)

    with pytest.raises(InvalidDump) as raised:
        two.delayq.load(file)

    assert str(raised.value) == (
        "line 3 of the dump: it has more than 1060000 bytes; see delayq_max_message"
    )
    assert file.tell() < 2_000_000
    assert two.delayq.counts().scheduled == 1


RELAY = {"exchange": "", "routing_key": "a", "declare": [], "mandatory": True, "list": None}
WRONG = {
    "id": ["", 5, "x" * 513, None, "\ud800"],
    "due_ms": [-1, 10**16, 1.5, True, "5", None],
    "scheduled_us": [-1, 10**16, "1"],
    "state": ["", "asleep", None, ["waiting"]],
    "task": [5, "x" * 513, "\ud800"],
    "task_hash": ["", "zz", "A" * 12, 5],
    "queue": [None, []],
    "queue_hash": ["0" * 11],
    "key": ["", "a\0b", "x" * 256, 5],
    "holds_key": [1, "yes"],
    "unique_ms": [-1, 10**16, "1"],
    "until_finished": [1],
    "tags": [[], "a", ["a"] * 17, ["a\0"], [5], [""]],
    "grace_ms": [-1, 10**16, "0"],
    "excused_ms": [-1, 10**13],
    "additions": [[], "a", [5], ["a\0"], ["\u0100"], ["x" * 5001]],
    "expires_after_ms": [10**16, "+5", 1.0],
    "run_now": [1],
    "released": ["true"],
    "attempts": [-1, 10**10, "1:0"],
    "refusals": [-1],
    "may_be_delivered": [0],
    "next_try_ms": ["-inf", -1],
    "dead_since_ms": [float("inf"), float("nan")],
    "error": [5, "x" * 100_001, "\ud800"],
    "route": [
        None, {}, {"list": 5, "queue": None}, {"queue": "a"}, {"queue": 5, "list": "a"},
        {"queue": "\ud800", "list": "a"}, {"queue": None, "list": "\ud800"},
        {**RELAY, "exchange": "\ud800"},
        {**RELAY, "routing_key": 5}, {**RELAY, "mandatory": 1}, {**RELAY, "exchange": None},
        {**RELAY, "declare": [{"what": 1}]}, {**RELAY, "declare": [{"name": 1}]}, {"exchange": ""},
        {**RELAY, "declare": 5}, {**RELAY, "declare": [5]},
    ],
    "message": [
        None, {}, "text", {"body": "", "headers": {}, "properties": {}},
        {"body": 5, "headers": {}, "properties": {}, "content-type": "", "content-encoding": ""},
        {"body": "", "headers": [], "properties": {}, "content-type": "", "content-encoding": ""},
    ],
}  # fmt: skip


def test_each_field_is_tried_with_what_it_cannot_be():
    assert WRONG.keys() == FIELDS["task"].keys()


@pytest.mark.parametrize("field", WRONG)
def test_a_field_that_cannot_be_is_refused_in_one_plain_sentence(two, dumped, field):
    for value in WRONG[field]:
        line = json.dumps({**json.loads(dumped[1]), field: value})

        with pytest.raises(InvalidDump) as raised:
            two.delayq.load([dumped[0], line, *dumped[2:]])

        assert str(raised.value).startswith(f"line 2 of the dump: {field} is ")
        assert str(raised.value).isprintable()
        assert len(str(raised.value)) < 400
    assert two.delayq.counts().scheduled == 0


def without(line, *fields):
    return json.dumps({name: one for name, one in json.loads(line).items() if name not in fields})


NEEDED = {name for name, one in FIELDS["task"].items() if one.needed}


def test_a_field_that_is_missing_is_refused_where_it_is_needed(two, dumped):
    refused = {}
    for field in (*FIELDS["task"], "kind"):
        lines = [dumped[0], without(dumped[1], field), *dumped[2:]]
        try:
            assert two.delayq.load(lines, dry_run=True).loaded == 2, field
        except InvalidDump as error:
            refused[field] = str(error)

    assert refused.keys() == {"kind", *NEEDED}
    for field, said in refused.items():
        assert re.match(f"line 2 of the dump: (it has no )?{field}", said)


def test_a_line_with_nothing_but_what_it_needs_is_loaded(two, dumped):
    line = without(dumped[1], *(FIELDS["task"].keys() - NEEDED))

    assert two.delayq.load([dumped[0], line, *dumped[2:]]).loaded == 2


def test_no_line_can_name_a_key_of_the_store(app):
    app.send_task("t", task_id="a", delayq_at=FAR)
    dumped = [*app.delayq.dump()]
    for route in (
        {"queue": "{delayq:0}:due", "list": "x"},
        {"queue": None, "list": "{delayq:0}:due"},
        {**RELAY, "routing_key": "{delayq:0}:due"},
    ):
        line = {**dumped[1], "id": "b", "route": route}
        (why,) = app.delayq.load([dumped[0], line, dumped[2]]).refused
        assert "a name that is none of this store's keys" in str(why)


def test_an_edited_line_gives_the_message_that_it_has(app, redis):
    for name in ("a", "b"):
        app.send_task("t", task_id=name, delayq_at=LONG_AGO)
    first, _, line, last = app.delayq.dump()
    line["id"] = "c"
    # As in a message that shares a template, which has the task's id in many places.
    line["message"]["properties"]["delivery_tag"] = f"c{line['scheduled_us']:016d}"

    assert app.delayq.load([first, line, {**last, "tasks": 1}]).loaded == 1

    for name in ("a", "b"):
        app.delayq.cancel(name)
    assert app.delayq.hand_over() == 1
    ((message,),) = lists(redis).values()
    due = {"delayq_due": LONG_AGO * 1000}
    assert json.loads(message)["headers"] == {**line["message"]["headers"], **due}


def test_a_dry_run_looks_at_each_line_and_writes_nothing(two, dumped, raw):
    before = raw.keys("{two:*")

    assert two.delayq.load(dumped, dry_run=True, paused=True).loaded == 2
    with pytest.raises(InvalidDump):
        two.delayq.load(dumped[:-1], dry_run=True)

    assert raw.keys("{two:*") == before


# A load takes each line of any dump, or reports it with the reason; no line stops the next.

HALF = "a\ud800b"  # half of a surrogate pair has no bytes
LONG = "x" * 513


@pytest.fixture
def raw(redis_server):
    """The stores of both apps."""
    with redis_server.client(db=7) as client:
        yield client


def lines_of(text):
    return [line for _, line in read(text) if "id" in line]


@pytest.mark.parametrize("name", [LONG, HALF], ids=["long", "half"])
def test_a_task_whose_name_is_too_much_for_a_line_keeps_its_hash(one, two, name):
    one.send_task(name, task_id="a", delayq_at=FAR)

    assert two.delayq.load(through_text(one.delayq)).loaded == 1

    (line,) = lines_of(through_text(two.delayq))
    assert (line["task"], len(line["task_hash"])) == ("", 12)
    assert two.delayq.select(task=name).count() == 1


def test_a_task_whose_queue_s_name_is_too_much_for_a_line_keeps_its_hash(delayq_app, url):
    one, two = delayq_app(url), delayq_app(url, delayq_prefix="two")
    one.send_task("t", task_id="a", delayq_at=FAR, queue=LONG)

    assert two.delayq.load(through_text(one.delayq)).loaded == 1

    (line,) = lines_of(through_text(two.delayq))
    assert (line["queue"], len(line["queue_hash"]), line["route"]["list"]) == ("", 12, LONG)


def test_an_error_is_cut_where_it_is_longer_than_a_line_has(one, two):
    at(one.delayq, "dead", reason="ü" * (LONGEST_TEXT + 1))

    assert two.delayq.load(through_text(one.delayq)).loaded == 1
    (line,) = lines_of(through_text(two.delayq))
    assert line["error"] == "ü" * LONGEST_TEXT


@pytest.mark.parametrize(
    ("field", "told"),
    [(b"a\xff", "a\\xff"), (b"x" * (LONGEST_ID + 1), "x" * LONGEST_ID), (b"", "")],
    ids=["no text", "long", "empty"],
)
def test_a_load_reports_a_record_under_an_invalid_id(one, two, raw, field, told):
    one.send_task("t", task_id="b", delayq_at=FAR)
    records = keys_of("b")["records"]
    for record in (raw.hget(records, "b"), b"2 of a later version"):
        raw.hset(records, field, record)

        loaded = two.delayq.load(through_text(one.delayq))

        assert [name for name, _ in loaded.unreadable] == [told]
    assert two.delayq.get("b").id == "b"


def test_a_task_that_no_load_would_take_is_dumped_as_unreadable(one, two, raw):
    for name in ("a", "b"):
        one.send_task("t", task_id=name, delayq_at=FAR)
    raw.hset(keys_of("a")["claims"], "a", f"{10**12}:0:0:0:")

    (unreadable,) = two.delayq.load(through_text(one.delayq)).unreadable

    assert unreadable == (
        "a", f"attempts is {10**12}; expected a whole number from 0 to 1000000000"
    )  # fmt: skip
    assert two.delayq.get("b").id == "b"


ANY = st.text(st.characters(), max_size=20)
LONG_TOO = ANY | st.sampled_from([LONG, HALF, "", "\0", "\n", "ü" * 300])


@settings(max_examples=40)
@given(
    names=st.tuples(LONG_TOO, LONG_TOO, ANY),
    error=st.binary(max_size=40),
    field=st.binary(max_size=40).filter(lambda one: one not in (b"a", b"b")),
    foreign=st.binary(max_size=40),
)
def test_each_line_of_any_dump_can_be_read(one, raw, **drawn):
    (name, queue, header), error = drawn["names"], drawn["error"]
    for records in raw.keys("*:records"):
        raw.delete(records)  # as small as possible: each example reads only its own
    one.send_task("t", task_id="a", delayq_at=FAR)
    one.send_task(name, (header,), task_id="b", delayq_at=FAR, queue=queue, headers={"x": header})
    raw.hset(keys_of("b")["errors"], "b", error)
    raw.hset(keys_of("b")["records"], drawn["field"], drawn["foreign"])

    lines = lines_of(through_text(one.delayq))

    assert len(lines) == 3
    assert "a" in [line["id"] for line in lines]
