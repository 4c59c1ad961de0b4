"""A message becomes an entry once, however often its broker delivers it."""

import pytest

from celery_delayq.core import clock
from celery_delayq.core.clock import MAX_DUE_MS, When
from celery_delayq.core.store import Membership, NewEntry
from celery_delayq.core.store.record import destination_for
from celery_delayq.core.store.schedule import MAX_BYTES, _arguments
from celery_delayq.errors import AlreadyScheduled, AlreadyTaken, InvalidDueTime
from tests.store import requests
from tests.store.support import FAR_MS, NOW_MS, new_record
from tests.support.waiting import PATIENCE

GENERATION_MS = 50_000  # of these tests


@pytest.fixture(autouse=True)
def short_generations(store):
    store.membership = Membership(5.0, remember=(GENERATION_MS / 1000 - 30.0, 1000))


@pytest.fixture
def marks(store):
    return store.copies()


def entry_of(marks, task_id, *, again, queue="celery", due_ms=FAR_MS, received=None):
    message = marks.delivery((task_id, queue), again=again, received=received)
    record = new_record(task_id, destination_for("L", "celery"))
    return NewEntry(task_id, When("at", due_ms), record, delivery=message)


def take(store, new):
    """Schedule an entry, or raise its error."""
    (answer,) = store.entries.schedule([new])
    if isinstance(answer, Exception):
        raise answer


def is_taken(marks, task_id, queue="celery"):
    return marks.is_taken((task_id, queue), clock.monotonic() + PATIENCE)


def marked(store):
    """How many marks each of the two generations has."""
    return [
        sum(len(field) == 16 for field in store.raw.hkeys(store.keys[name]))
        for name in ("arrived", "arrived_old")
    ]


@pytest.mark.parametrize("again", [True, False])
def test_it_is_marked_with_its_entry(store, marks, again):
    take(store, entry_of(marks, "a", again=again))

    assert store.places("a") == ["due"]
    assert marked(store) == [1, 0]
    assert is_taken(marks, "a")
    assert not is_taken(marks, "another")


def test_an_entry_that_no_broker_delivered_leaves_no_mark(store):
    store.schedule("a")

    assert marked(store) == [0, 0]


def left(store):
    store.steps().hand_over()


def cancelled(store):
    store.entries.cancel("a")


@pytest.mark.parametrize("since", [len, cancelled, left])
def test_a_message_delivered_again_becomes_no_second_entry(store, marks, since):
    take(store, entry_of(marks, "a", again=False, due_ms=NOW_MS))
    since(store) if since is not len else None
    before = store.snapshot()

    with pytest.raises(AlreadyTaken) as caught:
        take(store, entry_of(marks, "a", again=True, due_ms=NOW_MS))

    assert caught.value.task_id == "a"
    assert store.snapshot() == before


def test_a_message_with_the_same_id_that_is_no_repetition_is_another_one(store, marks):
    """The same call is made twice, with the same id: Celery would run both."""
    take(store, entry_of(marks, "a", again=False))
    store.entries.cancel("a")

    take(store, entry_of(marks, "a", again=False))

    assert store.places("a") == ["due"]
    assert marked(store) == [1, 0]


def test_the_same_id_in_another_queue_is_another_message(store, marks):
    take(store, entry_of(marks, "a", again=True))
    store.entries.cancel("a")

    take(store, entry_of(marks, "a", again=True, queue="other"))

    assert marked(store) == [2, 0]


@pytest.mark.parametrize(
    ("due_ms", "error"), [(FAR_MS, AlreadyScheduled), (MAX_DUE_MS + 1, InvalidDueTime)]
)
def test_a_refused_message_leaves_no_mark(store, marks, due_ms, error):
    store.schedule("a", FAR_MS) if error is AlreadyScheduled else None

    with pytest.raises(error):
        take(store, entry_of(marks, "a", again=False, due_ms=due_ms))

    assert marked(store) == [0, 0]
    assert not is_taken(marks, "a")


def test_each_of_a_batch_has_an_answer_and_a_mark_of_its_own(store, marks):
    take(store, entry_of(marks, "a", again=False))
    store.schedule("b", FAR_MS)

    answers = store.entries.schedule(
        [entry_of(marks, one, again=one == "a") for one in ("a", "b", "c", "d")]
    )

    assert [type(one).__name__ for one in answers] == [
        *("AlreadyTaken", "AlreadyScheduled", "Receipt", "Receipt")
    ]
    assert [is_taken(marks, one) for one in "abcd"] == [True, False, True, True]


def test_a_mark_is_known_until_the_next_generation_ends(store, marks):
    take(store, entry_of(marks, "a", again=False))
    store.entries.cancel("a")
    store.set_ms(NOW_MS + GENERATION_MS)
    take(store, entry_of(marks, "b", again=False))
    assert marked(store) == [1, 1]
    with pytest.raises(AlreadyTaken):
        take(store, entry_of(marks, "a", again=True))

    store.set_ms(NOW_MS + 2 * GENERATION_MS)
    take(store, entry_of(marks, "c", again=False))

    assert [is_taken(marks, one) for one in "abc"] == [False, True, True]


def test_a_generation_ends_as_well_when_it_has_so_many_marks(store):
    store.membership = Membership(5.0, remember=(3600, 2))

    for one in "abc":
        take(store, entry_of(store.copies(), one, again=False))

    assert marked(store) == [1, 2]


def test_a_repeated_request_is_told_the_first_one_s_answer(store, marks):
    new = [entry_of(marks, "a", again=True)]
    request = requests.request(
        store,
        "schedule",
        latest=MAX_DUE_MS,
        supersede=0,
        revokes="none",
        tells=1,
        max_bytes=MAX_BYTES,
        keep_ms=new[0].delivery.keep_ms,
        most_marks=new[0].delivery.most,
        entries=_arguments(new, (), int),
    )

    assert request.answer() == request.answer() == b"%d" % FAR_MS


def adoption(store, marks, task_id, received):
    """The request of a worker that adopts a message; a test sends it."""
    return asked_of(store, [entry_of(marks, task_id, again=True, received=received)])


def putting_off(store, marks, task_id):
    return asked_of(store, [entry_of(marks, task_id, again=True)])


def asked_of(store, new):
    request = requests.request(
        store,
        "schedule",
        latest=MAX_DUE_MS,
        supersede=0,
        revokes="none",
        tells=1,
        max_bytes=MAX_BYTES,
        keep_ms=new[0].delivery.keep_ms,
        most_marks=new[0].delivery.most,
        entries=_arguments(new, (), lambda _: requests.now_us(store)),
    )
    store.set_us(requests.now_us(store) + 1)
    return request


def test_a_dead_worker_s_request_stores_nothing_once_another_let_the_message_through(store, marks):
    late = adoption(store, marks, "a", clock.monotonic())
    assert not is_taken(marks, "a")

    assert late.answer() == b"scheduled"

    assert store.places("a") == []
    assert not is_taken(marks, "a")


def test_nor_if_it_is_alive_and_asks_anew(store, marks):
    """Its connection to the broker broke, so the message was delivered to another worker."""
    received = clock.monotonic()
    late = adoption(store, marks, "a", received)
    assert not is_taken(marks, "a")
    store.set_us(requests.now_us(store) + 1)

    assert late.anew().answer() == b"scheduled"

    assert store.places("a") == []


def test_nor_is_what_its_task_put_off(store, marks):
    late = putting_off(store, marks, "a")
    assert not is_taken(marks, "a")

    assert late.answer() == b"again"

    assert store.places("a") == []


def test_each_that_lets_it_through_ends_what_was_asked_before(store, marks):
    assert not is_taken(marks, "a")
    store.set_us(requests.now_us(store) + 1)
    late = putting_off(store, marks, "a")
    assert not is_taken(marks, "a")

    assert late.answer() == b"again"


def test_the_task_that_was_let_through_can_put_itself_off(store, marks):
    assert not is_taken(marks, "a")

    take(store, entry_of(marks, "a", again=True))

    assert store.places("a") == ["due"]
    assert is_taken(marks, "a")


def test_a_live_worker_that_puts_its_task_off_asks_anew(store, marks, monkeypatch):
    """Its message was delivered again while it ran, and let through just before its request."""
    store.entries.join()
    execute, done = store.scripts.connection.execute, []

    def overtaken(step, command, until=None):
        if step == "schedule" and not done:
            store.set_us(requests.now_us(store) + 1_000_000)
            done.append(is_taken(marks, "a"))
        return execute(step, command, until)

    monkeypatch.setattr(store.scripts.connection, "execute", overtaken)
    take(store, entry_of(marks, "a", again=True))

    assert done == [False]
    assert store.places("a") == ["due"]


def test_a_message_that_was_let_through_and_delivered_again_may_become_an_entry(store, marks):
    """The worker that let it through has given it back."""
    assert not is_taken(marks, "a")
    store.set_us(requests.now_us(store) + 1)

    assert adoption(store, marks, "a", clock.monotonic()).answer() == b"%d" % FAR_MS

    assert is_taken(marks, "a")


def test_a_message_that_became_an_entry_is_not_let_through(store, marks):
    take(store, entry_of(marks, "a", again=True))
    store.entries.cancel("a")
    before = store.snapshot()

    assert is_taken(marks, "a")

    assert store.snapshot() == before


def test_a_message_given_to_another_worker_meanwhile_becomes_no_second_entry(store, marks):
    """Its broker took it back, but the first worker goes on with it."""
    received = clock.monotonic()
    store.set_us(1000 * NOW_MS + 2_000_000)
    take(store, entry_of(marks, "a", again=True))
    store.entries.cancel("a")

    with pytest.raises(AlreadyTaken):
        take(store, entry_of(marks, "a", again=False, received=received))


def test_a_message_marked_before_it_was_received_is_another_one(store, marks):
    take(store, entry_of(marks, "a", again=True))
    store.entries.cancel("a")
    store.set_us(1000 * NOW_MS + 2_000_000)
    store.entries.cancel("nobody")  # its process learns the time

    take(store, entry_of(marks, "a", again=False, received=clock.monotonic() - 1))

    assert store.places("a") == ["due"]
