"""The two parts of a record that the scheduling process writes."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_delayq.core.store.record import (
    LINES,
    NAME_BYTES,
    Template,
    header_for,
    labels_for,
    whole,
)

pytestmark = pytest.mark.core

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
