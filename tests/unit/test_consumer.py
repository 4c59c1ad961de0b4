"""The door of a worker's consumer: which leaf looks at a message first, and who takes it."""

from types import SimpleNamespace

import pytest

from celery_delayq.contrib.consumer import look_first


class Consumer:
    """A consumer of one task, whose strategy notes that it ran."""

    def __init__(self):
        self.seen = []
        self.strategies = {}

    def update_strategies(self):
        self.strategies["t"] = lambda *_: self.seen.append("task")

    def receive(self):
        self.strategies["t"](SimpleNamespace(), None, None)

    def let(self, leaf, *, takes=False):
        def look(*_):
            self.seen.append(leaf)
            return takes

        look_first(self, leaf, look)


@pytest.fixture
def consumer():
    return Consumer()


def test_copies_are_dropped_before_they_can_be_adopted(consumer):
    for leaf in ("adoption", "copies", "putoff"):
        consumer.let(leaf)
    consumer.update_strategies()
    consumer.receive()
    assert consumer.seen == ["putoff", "copies", "adoption", "task"]


def test_a_message_that_a_leaf_takes_goes_no_further(consumer):
    consumer.let("copies", takes=True)
    consumer.let("adoption")
    consumer.update_strategies()
    consumer.receive()
    assert consumer.seen == ["copies"]


def test_on_a_new_connection_each_leaf_looks_once(consumer):
    for _ in range(2):
        consumer.let("copies")
        consumer.update_strategies()
    consumer.receive()
    assert consumer.seen == ["copies", "task"]


def test_a_leaf_without_a_place_in_the_order_is_no_silent_one(consumer):
    consumer.let("another")
    with pytest.raises(ValueError, match="not in tuple"):
        consumer.update_strategies()
