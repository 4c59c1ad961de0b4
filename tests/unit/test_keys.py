"""What a scheduling process writes: the names of keys, a record, and an entry's terms."""

import hashlib
import uuid
from collections import Counter
from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from celery_delayq.core.scheduling.options import PLAIN, entry_options_of
from celery_delayq.core.store.keys import KEYS, SLOTS, Keys, hash_tag, shard_of
from celery_delayq.core.store.record import (
    LINES,
    NAME_BYTES,
    Template,
    header_for,
    labels_for,
    whole,
)
from celery_delayq.errors import InvalidOption

pytestmark = pytest.mark.core


EACH_NUMBER = range(1, 65)


def test_a_key_is_its_name_behind_the_shards_hash_tag():
    assert {name: Keys("shop")[name] for name in KEYS} == {
        name: f"{{shop:0}}:{name}" for name in KEYS
    }


def test_all_keys_of_a_shard_share_a_cluster_slot():
    keys = Keys("shop", 3, 7)
    names = [*(keys[name] for name in KEYS), *keys.channels("host:1:ab")]
    assert len({key_slot(name.encode()) for name in names}) == 1


@pytest.mark.parametrize("prefix", ["delayq", "a", "shop-2.test", "x" * 64])
def test_each_shard_lies_in_its_part_of_the_slots(prefix):
    for shards in EACH_NUMBER:
        for shard in range(shards):
            slot = key_slot(Keys(prefix, shard, shards)["due"].encode())
            assert shard * SLOTS / shards <= slot < (shard + 1) * SLOTS / shards


def test_however_many_shards_there_are_they_spread_evenly_over_nodes():
    """A cluster gives each node a range of slots; with tags 0, 1, 2 … one node may get most."""
    for nodes, shards in [(3, 3), (3, 6), (2, 4), (4, 8), (6, 12)]:
        slots = [key_slot(Keys("delayq", one, shards)["due"].encode()) for one in range(shards)]
        assert set(Counter(slot * nodes // SLOTS for slot in slots).values()) == {shards // nodes}


def test_two_layouts_share_no_shard():
    """So a store can be copied into another layout while it stays whole."""
    tags = [hash_tag("delayq", shard, shards) for shards in EACH_NUMBER for shard in range(shards)]
    assert len(set(tags)) == len(tags) == sum(EACH_NUMBER)


def test_processes_that_differ_in_the_number_of_shards_meet_in_keys_of_their_own():
    assert Keys("delayq")["meta"] == Keys("delayq", 0, 1)["meta"] == "{delayq:0}:meta"
    for shards in EACH_NUMBER[1:]:
        assert not any(Keys("delayq", one, shards).is_meeting_place for one in range(shards))


@pytest.mark.parametrize(("shard", "shards"), [(1, 1), (-1, 2), (2, 2), (0, 0)])
def test_a_shard_beyond_their_number_is_an_error(shard, shards):
    with pytest.raises(ValueError, match="there is no shard"):
        Keys("delayq", shard, shards)


def test_only_declared_names_are_there():
    with pytest.raises(KeyError):
        Keys("shop")["dues"]


def test_every_key_declares_its_type_and_content():
    for name, says in KEYS.items():
        kind, _, content = says.partition("  ")
        assert kind in {"ZSET", "HASH", "LIST", "STRING", "CHANNEL"}, name
        assert content, name


# The shard of an entry.


def test_the_shard_of_an_id_is_the_same_everywhere_and_for_ever():
    """Otherwise the tasks stored under these ids could no longer be found."""
    assert [shard_of(one, 64) for one in ("a", "user-17", "süß", "1" * 512)] == KNOWN
    assert {shard_of(str(number), 1) for number in range(100)} == {0}


KNOWN = [3, 57, 6, 40]


@pytest.mark.parametrize("shards", [3, 64])
@pytest.mark.parametrize(
    "name",
    [
        lambda number: str(uuid.UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128)),
        str,
        lambda number: f"{number:036}",
        lambda number: f"reminder:{number * 10}:mail",
    ],
    ids=["uuid", "number", "padded", "with words"],
)
def test_ids_of_any_kind_are_spread_evenly(name, shards):
    ids = shards * 1000
    counts = Counter(shard_of(name(number), shards) for number in range(ids))
    assert min(counts.values()) * shards / ids > 0.8
    assert max(counts.values()) * shards / ids < 1.2


# The two parts of a record that the scheduling process writes.


LABELS = labels_for("tests.remind", "celery")
texts = st.text(st.characters(exclude_categories=["Cs"]))
lines = st.lists(texts.filter(lambda text: "\n" not in text), min_size=LINES, max_size=LINES)


@pytest.mark.parametrize(
    ("kind", "place", "expected"),
    [("L", "celery", b"1L6:celery"), ("R", "{}", b"1R2:{}"), ("L", "é:1", b"1L4:\xc3\xa9:1")],
)
def test_a_header_tells_the_length_of_its_destination_in_bytes(kind, place, expected):
    assert header_for(kind, place) == expected


@given(texts)
def test_a_whole_message_follows_the_letter_i_as_it_is(message):
    record = whole(b"1L6:celery", LABELS, message)
    assert record.body == b"I" + message.encode()
    assert (record.header, record.labels) == (b"1L6:celery", LABELS)
    assert (record.template, record.name) == (b"", None)


@given(lines)
def test_a_template_is_named_by_its_content(template):
    one, other = (
        Template.of(template).new_record(b"1L1:a", LABELS, ["x"]),
        Template.of(template).new_record(b"1R1:b", LABELS, ["y"]),
    )
    assert one.template == other.template == "\n".join(template).encode()
    assert one.name == other.name
    assert len(one.name) == NAME_BYTES


@given(lines, lines)
def test_two_templates_have_two_names(template, another):
    one, other = Template.of(template), Template.of(another)
    assert (one.name == other.name) == (template == another)


def test_the_parts_that_differ_follow_the_name_line_by_line():
    record = Template.of(["x"] * LINES).new_record(b"1L1:a", LABELS, ["body", "", "null"])
    assert record.body == b"T" + record.name + b"body\n\nnull"


@given(texts, texts)
def test_labels_are_a_flag_and_what_tells_tasks_and_queues_apart(task, queue):
    labels = labels_for(task, queue)
    assert labels[:1] == b"0"
    assert labels[1:7] == hashlib.sha1(task.encode()).digest()[:6]
    assert labels[7:] == hashlib.sha1(queue.encode()).digest()[:6]


def test_a_name_that_is_no_utf8_has_a_label_as_well():
    assert len(labels_for("\ud800", "\udfff")) == 13


# A call's terms for its entry: the accepted and the refused ones, the same in every call.


LONG = "x" * 256
TEXT = "text of 1 to 255 bytes without NUL"
LIST = f"a list of at most 16 tags, each {TEXT}"
MANY = [str(number) for number in range(17)]
SPAN = "seconds, or a timedelta, of 0 to 9007199254 seconds"
BOTH = "delayq_late='skip' and delayq_grace together"
POLICIES = "one of reject, keep, replace, earliest, latest, debounce"
DEBOUNCE = "delayq_conflict='debounce' beside it"
KEY = "delayq_key beside it"
HOLDS = {"unique_until": "finished", "unique_for": 5}
HELD_FOR = "seconds, or a timedelta, of 0.001 to 9007199254 seconds"

WRONG = [
    *(({"key": key}, "key", key, TEXT) for key in ("", LONG, "a\0b", 5, b"k", "\ud800")),
    ({"key": "é" * 128}, "key", "é" * 128, TEXT),
    ({"conflict": "first"}, "conflict", "first", POLICIES),
    ({"conflict": ["keep"]}, "conflict", ["keep"], POLICIES),
    ({"max_wait": 5}, "max_wait", 5, DEBOUNCE),
    ({"max_wait": 5, "conflict": "keep"}, "max_wait", 5, DEBOUNCE),
    *(
        ({"max_wait": wait, "conflict": "debounce"}, "max_wait", wait, SPAN)
        for wait in (-1, "5", float("nan"), float("inf"), True, timedelta(-1))
    ),
    ({"tags": "a"}, "tags", "a", "a list of tags, like ['a']"),
    *(({"tags": tags}, "tags", tags, LIST) for tags in (5, [""], [LONG], ["a\0"], [5], MANY)),
    ({"late": "never"}, "late", "never", "run or skip"),
    ({"late": "skip"}, "late", "skip", BOTH),
    ({"grace": 5}, "grace", 5, BOTH),
    ({"grace": 5, "late": "run"}, "grace", 5, BOTH),
    ({"grace": -1, "late": "skip"}, "grace", -1, SPAN),
    ({"grace": timedelta(-1), "late": "skip"}, "grace", timedelta(-1), SPAN),
    *(({name: value}, name, value, KEY) for name, value in HOLDS.items()),
    *(
        ({"key": "k", "unique_until": value}, "unique_until", value, "delivered or finished")
        for value in ("started", 5)
    ),
    *(
        ({"key": "k", "unique_for": value}, "unique_for", value, HELD_FOR)
        for value in (0, -1, "soon", float("nan"), timedelta(0), True, [5])
    ),
]


def named(said):
    return {f"delayq_{name}": value for name, value in said.items()}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: ascii(wrong[0])[:40])
def test_the_error_for_an_unusable_term_names_the_expected_one(wrong):
    said, name, value, expected = wrong
    with pytest.raises(InvalidOption) as caught:
        entry_options_of(named(said))
    error = caught.value
    assert [error.name, error.value, error.expected] == [f"delayq_{name}", value, expected]


@pytest.mark.parametrize("grace", [0, 1.5, timedelta(seconds=1.5), 10**9])
def test_grace_is_seconds_or_a_timedelta(grace):
    seconds = grace.total_seconds() if isinstance(grace, timedelta) else grace
    assert (
        entry_options_of(named({"late": "skip", "grace": grace})).extras.grace_ms == seconds * 1000
    )


def test_the_longest_key_and_the_most_tags_are_taken():
    tags = MANY[:16]
    extras = entry_options_of(named({"key": "é" * 127 + "x", "tags": [*tags, *tags]})).extras
    assert (extras.key, extras.tags) == ("é" * 127 + "x", tuple(tags))


def test_a_tag_counts_once_and_a_set_of_them_will_do():
    assert entry_options_of(named({"tags": ["b", "a", "b"]})).extras.tags == ("b", "a")
    assert entry_options_of(named({"tags": {"a"}})).extras.tags == ("a",)


def test_a_policy_goes_with_its_longest_wait():
    assert entry_options_of(named({"conflict": "keep"})).conflict == "keep"
    assert (
        entry_options_of(named({"conflict": "debounce", "max_wait": 5})).conflict == "debounce 5000"
    )
    assert entry_options_of(named({"key": "k", "conflict": "reject"})).conflict == ""
    assert entry_options_of({}) is PLAIN


@pytest.mark.parametrize(
    ("said", "hold"),
    [
        ({}, ""),
        ({"unique_until": "delivered"}, ""),
        ({"unique_until": "finished"}, "f3600000"),
        ({"unique_until": "finished", "unique_for": 5}, "f5000"),
        ({"unique_for": timedelta(milliseconds=1)}, "w1"),
        ({"unique_until": "delivered", "unique_for": 0.5}, "w500"),
    ],
    ids=str,
)
def test_a_key_is_held_until_its_run_has_finished_or_for_a_while(said, hold):
    assert entry_options_of(named({"key": "k", **said})).extras.hold == hold


@pytest.mark.parametrize(
    ("said", "attributes", "wanted"),
    [
        ({"conflict": "keep"}, {"conflict": "debounce", "max_wait": 60}, {"conflict": "keep"}),
        (
            {"conflict": "debounce"},
            {"conflict": "debounce", "max_wait": timedelta(minutes=1)},
            {"conflict": "debounce 60000"},
        ),
        ({"late": "run"}, {"late": "skip", "grace": 60}, {"grace_ms": None}),
        ({"grace": 5}, {"late": "skip", "grace": 60}, {"grace_ms": 5000}),
        ({"unique_until": "delivered"}, {"unique_until": "finished", "unique_for": 5}, {}),
        (
            {"unique_until": "finished"},
            {"unique_until": "finished", "unique_for": 5},
            {"hold": "f3600000"},
        ),
        ({"unique_for": 7}, {"unique_until": "finished", "unique_for": 5}, {"hold": "f7000"}),
    ],
    ids=str,
)
def test_a_call_s_own_policy_goes_before_its_task_s_with_all_its_details(said, attributes, wanted):
    task = SimpleNamespace(**named(attributes))
    read = entry_options_of(named({"key": "k", **said}), task)
    of_key = {"conflict": read.conflict, "hold": read.extras.hold}
    found = {**of_key, "grace_ms": read.extras.grace_ms}
    assert found == {"conflict": "", "hold": "", "grace_ms": None, **wanted}


def test_a_task_has_no_key():
    with pytest.raises(InvalidOption) as caught:
        entry_options_of({}, SimpleNamespace(delayq_key="k"))
    assert str(caught.value) == (
        "delayq_key is 'k'; expected a key in each call; a task's would be that of them all"
    )
