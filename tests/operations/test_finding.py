"""A part of what a user means is enough: of an id, a tag, a name."""

import pytest

from celery_delayq.core.errors import InvalidOption
from celery_delayq.operations import finding
from tests.app.support import FAR

HOSTILE = ["abcdef*", "abcdef?x", "abcdef[a]", "abcdef\\x", "abcdef-1", "abcdef^"]


@pytest.fixture
def app(delayq_app, url):
    return delayq_app(url)


def scheduled(app, *ids, **options):
    for task_id in ids:
        app.send_task("t", task_id=task_id, delayq_at=FAR, **options)


def ids_with(app, beginning, *, seconds=9.0, most=1000, place=""):
    services = app.delayq.services
    return finding.ids_with(services, beginning, seconds=seconds, most=most, place=place)


def every_id(app, beginning, seconds=9.0):
    found, place = [], ""
    while True:
        ids = ids_with(app, beginning, seconds=seconds, place=place)
        found, place = found + ids.found, ids.place
        if not place:
            return sorted(found)


def test_ids_are_found_by_their_beginning_alone(app):
    scheduled(app, "order-41", "order-42", "reorder-41", "Order-41")
    assert every_id(app, "order-") == ["order-41", "order-42"]
    assert every_id(app, "order-42") == ["order-42"]
    assert every_id(app, "order-43") == []


@pytest.mark.parametrize("beginning", HOSTILE)
def test_no_character_of_an_id_stands_for_others(app, beginning):
    scheduled(app, *HOSTILE)
    assert every_id(app, beginning) == [beginning]


def test_a_search_goes_on_where_it_stopped(app, limits):
    limits(find_step=10)
    ids = [f"order-{number:04}" for number in range(700)]
    scheduled(app, *ids)

    first = ids_with(app, "order-", seconds=0)

    assert 0 < len(first.found) < 700
    assert first.looked_at == 10
    assert set(every_id(app, "order-", seconds=0)) == set(ids)


@pytest.mark.parametrize(
    ("beginning", "place"), [("order", ""), ("order-", "x"), ("order-", "99:0:0")]
)
def test_a_search_that_is_none(app, beginning, place):
    with pytest.raises(InvalidOption):
        ids_with(app, beginning, place=place)


def test_a_search_stops_where_it_has_enough_however_many_begin_so(app):
    scheduled(app, *(f"other-{number:04}" for number in range(1000)))
    ids = [f"order-{number:04}" for number in range(1000)]
    scheduled(app, *ids)
    found, place, parts = set(), "", 0
    while place or not parts:
        part = ids_with(app, "order-", most=20, place=place)
        # Half of all ids begin so, by chance a few more or less of those that a step meets.
        assert len(part.found) <= 5 * 20
        found, place, parts = found | {*part.found}, part.place, parts + 1
    assert found == {*ids}


def test_tags_are_found_by_their_beginning_each_once(app):
    scheduled(app, "a", "b", delayq_tags=["customer:7", "é"])
    scheduled(app, "c", delayq_tags=["customer:70", "customs", "zoo"])
    services = app.delayq.services

    assert finding.tags_with(services, "customer", 9) == ["customer:7", "customer:70"]
    assert finding.tags_with(services, "customer", 1) == ["customer:7"]
    assert finding.tags_with(services, "", 9) == [
        "customer:7",
        "customer:70",
        "customs",
        "zoo",
        "é",
    ]
    assert finding.tags_with(services, "x", 9) == []


def test_a_tag_of_many_shards_leaves_room_for_others(app):
    scheduled(app, *(f"t{number}" for number in range(30)), delayq_tags=["a1", "a2", "a3"])
    assert finding.tags_with(app.delayq.services, "a", 3) == ["a1", "a2", "a3"]


def test_an_entry_that_comes_twice_is_found_once(app, monkeypatch):
    scheduled(app, "order-1")
    ask = finding._ask

    def twice(*given):
        after, found = ask(*given)
        return after, found * 2

    monkeypatch.setattr(finding, "_ask", twice)

    assert every_id(app, "order-") == ["order-1"]


def test_the_tasks_with_a_tag_are_counted_without_reading_them(app):
    scheduled(app, "a", "b", "c", delayq_tags=["customer:7"])
    scheduled(app, "d", delayq_tags=["customer:70", "customer:7\x01"])
    assert finding.tag_count(app.delayq.services, "customer:7") == 3
    assert finding.tag_count(app.delayq.services, "customer") == 0


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("remind", ["shop.remind"]),
        ("Remind", ["shop.remind"]),
        ("shop.remnd", ["shop.remind"]),
        ("remnd", ["shop.remind"]),
        ("shop.remind", []),
        ("unlike", []),
    ],
)
def test_a_name_is_suggested_by_a_part_or_with_a_slip(text, meant):
    assert finding.similar(text, {"shop.remind", "shop.bill", "mail"}) == meant


def test_names_that_only_waiting_tasks_have_are_suggested_too(app):
    app.send_task("other.bill", queue="invoices", delayq_at=FAR)
    assert finding.suggested(app.delayq, "task", "bill") == ["other.bill"]
    assert finding.suggested(app.delayq, "queue", "invoice") == ["invoices"]
    assert finding.suggested(app.delayq, "queue", "celry") == ["celery"]
