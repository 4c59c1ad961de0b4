"""Each line of a dump can be loaded, or is reported with the reason; no line stops the next."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celery_delayq.contrib.care.lines import LONGEST_ID, LONGEST_TEXT, read
from tests.app.support import FAR
from tests.app.test_dump import one, through_text, two
from tests.support.shards import keys_of

__all__ = ["one", "two"]

HALF = "a\ud800b"  # half of a surrogate pair has no bytes
LONG = "x" * 513


@pytest.fixture
def raw(redis_server):
    """The store of the first app."""
    with redis_server.client(db=7) as client:
        yield client


def lines_of(text):
    return [line for _, line in read(text) if "id" in line]


@pytest.mark.parametrize("name", [LONG, HALF], ids=["long", "half"])
def test_a_task_whose_name_is_too_much_for_a_line_keeps_its_hash(one, two, name):
    one.send_task(name, task_id="a", delayq_at=FAR)

    assert two.delayq.load(through_text(one.delayq)).loaded == 1

    (line,) = lines_of(through_text(two.delayq))
    assert line["task"] == ""
    assert len(line["task_hash"]) == 12
    assert two.delayq.select(task=name).count() == 1


def test_so_does_one_whose_queue_has_such_a_name(delayq_app, url):
    one, two = delayq_app(url), delayq_app(url, delayq_prefix="two")
    one.send_task("t", task_id="a", delayq_at=FAR, queue=LONG)

    assert two.delayq.load(through_text(one.delayq)).loaded == 1

    (line,) = lines_of(through_text(two.delayq))
    assert line["queue"] == ""
    assert len(line["queue_hash"]) == 12
    assert line["route"]["list"] == LONG


def test_an_error_is_cut_where_it_is_longer_than_a_line_has(one, two, raw):
    one.send_task("t", task_id="a", delayq_at=FAR)
    raw.hset(keys_of("a")["errors"], "a", "ü" * (LONGEST_TEXT + 1))

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
