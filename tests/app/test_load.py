"""A load reads untrusted input: it checks each line before it writes anything of that line."""

import io
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celery_delayq.contrib.care.lines import FIELDS, LONGEST_ID, LONGEST_TEXT, read
from celery_delayq.errors import InvalidDump
from tests.app.support import FAR, LONG_AGO, lists
from tests.app.test_dump import one, through_text, two
from tests.support.places import at
from tests.support.shards import keys_of

__all__ = ["one", "two"]


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
