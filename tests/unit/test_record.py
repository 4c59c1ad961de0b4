"""The two parts of a record that the scheduling side writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_delayq.store.record import LINES, NAME_BYTES, Template, destination_for, whole

texts = st.text(st.characters(exclude_categories=["Cs"]))
lines = st.lists(texts.filter(lambda text: "\n" not in text), min_size=LINES, max_size=LINES)


@pytest.mark.parametrize(
    ("kind", "place", "expected"),
    [("L", "celery", b"L6:celery"), ("R", "{}", b"R2:{}"), ("L", "é:1", b"L4:\xc3\xa9:1")],
)
def test_a_destination_tells_its_length_in_bytes(kind, place, expected):
    assert destination_for(kind, place) == expected


@given(texts)
def test_a_whole_message_follows_the_letter_i_as_it_is(message):
    record = whole(b"L6:celery", message)
    assert record.body == b"I" + message.encode()
    assert (record.destination, record.template, record.name) == (b"L6:celery", b"", None)


@given(lines)
def test_a_template_is_named_by_its_content(template):
    one, other = (
        Template.of(template).new_record(b"L1:a", ["x"]),
        Template.of(template).new_record(b"R1:b", ["y"]),
    )
    assert one.template == other.template == "\n".join(template).encode()
    assert one.name == other.name
    assert len(one.name) == NAME_BYTES


@given(lines, lines)
def test_two_templates_have_two_names(template, another):
    one, other = Template.of(template), Template.of(another)
    assert (one.name == other.name) == (template == another)


def test_what_differs_follows_the_name_line_by_line():
    record = Template.of(["x"] * LINES).new_record(b"L1:a", ["body", "", "null"])
    assert record.body == b"T" + record.name + b"body\n\nnull"
