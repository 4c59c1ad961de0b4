"""The documented limits that no other test covers."""

import re

import pytest

from celery_delayq.core.handover.relay import MAX_REFUSALS
from celery_delayq.core.settings import REMEMBER
from tests.app.support import LONG_AGO, hand_over_until_dead, lists
from tests.readme.document import page
from tests.support.waiting import eventually


@pytest.fixture
def app(shop):
    return shop.app


def waiting_for(redis_server):
    """The number of entries that go directly, and of those that are relayed."""
    return tuple(redis_server.client().zcard(f"{{delayq:0}}:{index}") for index in ("due", "relay"))


def test_a_plain_queue_of_the_store_s_own_redis_goes_directly(app, redis_server):
    app.send_task("shop.remind", (42,), queue="mail", delayq_at=LONG_AGO)

    assert waiting_for(redis_server) == (1, 0)


@pytest.mark.parametrize(
    "broker", ["{url}/2", "{url}/0;redis://127.0.0.1:1/0"], ids=["another database", "two URLs"]
)
def test_to_any_other_broker_it_is_relayed(shop, redis_server, monkeypatch, broker):
    url = redis_server.url().removesuffix("/0")
    monkeypatch.setenv("CELERY_BROKER_URL", broker.format(url=url))
    shop.app.conf.delayq_url = f"{url}/0"

    shop.app.send_task("shop.remind", (42,), delayq_at=LONG_AGO)

    assert waiting_for(redis_server) == (0, 1)
    assert shop.delayq.hand_over() == 1


def number(text):
    return int(text.replace(",", ""))


def test_as_many_tombstones_are_kept_as_the_pages_say():
    assert REMEMBER == (3600, 1_000_000)
    assert "known** for [an hour, of the last million" in page("concepts/limits").text
    for leave, kept, memory in page("reference/settings").rows("How long answers last"):
        rate, (least, most) = int(leave.split()[0]), re.findall(r"[\d,]+", kept)
        assert [number(least), number(most)] == [min(rate * 3600, 1_000_000), 2 * number(least)]
        assert memory == f"{number(most) * 120 / 1_000_000:.0f} MB at most"


def test_a_refused_message_is_tried_as_often_as_the_page_says():
    assert MAX_REFUSALS == 8
    assert "After eight refusals it is dead" in page("concepts/guarantees").text


def test_a_dead_task_says_why_and_can_be_retried(app, redis_server):
    app.send_task("shop.remind", (42,), task_id="order-42", delayq_at=LONG_AGO)
    redis_server.client().set("celery", "no list")
    hand_over_until_dead(app.delayq, redis_server.client())

    assert app.delayq.counts().dead == 1
    assert "WRONGTYPE" in app.delayq.get("order-42").reason

    redis_server.client().delete("celery")
    assert app.delayq.reschedule("order-42", after=0)
    eventually(app.delayq.hand_over)
    assert len(lists(redis_server.client())[b"celery"]) == 1


def test_a_dead_task_can_be_cancelled(app, redis_server):
    app.send_task("shop.remind", (42,), task_id="order-42", delayq_at=LONG_AGO)
    redis_server.client().set("celery", "no list")
    hand_over_until_dead(app.delayq, redis_server.client())

    assert app.delayq.cancel("order-42")

    assert app.delayq.counts().dead == 0
