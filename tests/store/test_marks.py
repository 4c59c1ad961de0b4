"""Marks: a message becomes an entry once, and of its copies the first one to arrive runs."""

from functools import partial
from unittest import mock

import pytest

from celery_delayq.core import clock
from celery_delayq.core.clock import MAX_DUE_MS, When
from celery_delayq.core.store import Keys, NewEntry
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.delivery import Copies
from celery_delayq.core.store.record import header_for
from celery_delayq.errors import AlreadyScheduled, AlreadyTaken, InvalidDueTime
from tests.store import requests
from tests.store.support import FAR_MS, NOW_MS, new_record
from tests.support.waiting import PATIENCE

GENERATION_MS = 50_000  # of these tests
PAUSE_MS = 60_000  # the longest time without a mark that ages marks


@pytest.fixture(autouse=True)
def short_generations(store):
    store.set(remember=(GENERATION_MS / 1000 - 30.0, 1000))


@pytest.fixture
def marks(store):
    return store.copies()


def entry_of(marks, task_id, *, again, queue="celery", due_ms=FAR_MS, received=None):
    message = marks.delivery((task_id, queue), again=again, received=received)
    record = new_record(task_id, header_for("L", "celery"))
    return NewEntry(task_id, When("at", due_ms), record, delivery=message)


@pytest.fixture
def take(store):
    """Schedule the entry of a delivered message, or raise its error."""

    def schedule(task_id, **options):
        (answer,) = store.entries.schedule([entry_of(store.copies(), task_id, **options)])
        if isinstance(answer, Exception):
            raise answer

    return schedule


def is_taken(marks, task_id, queue="celery"):
    return marks.is_taken((task_id, queue), clock.monotonic() + PATIENCE)


def marked(store):
    """How many marks each of the two generations has."""
    return [
        sum(len(field) == 16 for field in store.raw.hkeys(store.keys[name]))
        for name in ("arrived", "arrived_old")
    ]


def later(store, us=1):
    store.set_us(requests.now_us(store) + us)


@pytest.mark.parametrize("again", [True, False])
def test_a_message_is_marked_with_its_entry(store, take, marks, again):
    take("a", again=again)
    assert store.places("a") == ["due"]
    assert marked(store) == [1, 0]
    assert is_taken(marks, "a")
    assert not is_taken(marks, "another")


SINCE = {
    "waits": lambda _: None,
    "was cancelled": lambda store: store.entries.change("a", Removal()),
    "left": lambda store: store.steps().hand_over(),
}


@pytest.mark.parametrize("since", SINCE.values(), ids=SINCE)
def test_a_message_delivered_again_becomes_no_second_entry(store, take, since):
    take("a", again=False, due_ms=NOW_MS)
    since(store)
    before = store.snapshot()

    with pytest.raises(AlreadyTaken) as caught:
        take("a", again=True, due_ms=NOW_MS)

    assert caught.value.task_id == "a"
    assert store.snapshot() == before


@pytest.mark.parametrize(
    ("again", "queue", "marks_then"),
    [(False, "celery", 1), (True, "other", 2)],
    ids=["same call made twice, which Celery runs twice", "in another queue"],
)
def test_a_message_with_the_same_id_that_is_no_repetition_is_another_one(
    store, take, again, queue, marks_then
):
    take("a", again=again)
    store.entries.change("a", Removal())
    take("a", again=again, queue=queue)
    assert store.places("a") == ["due"]
    assert marked(store) == [marks_then, 0]


@pytest.mark.parametrize(
    ("due_ms", "error"), [(FAR_MS, AlreadyScheduled), (MAX_DUE_MS + 1, InvalidDueTime)]
)
def test_a_refused_message_leaves_no_mark(store, take, marks, due_ms, error):
    store.schedule("a", FAR_MS) if error is AlreadyScheduled else None
    with pytest.raises(error):
        take("a", again=False, due_ms=due_ms)
    assert marked(store) == [0, 0]
    assert not is_taken(marks, "a")


def test_each_of_a_batch_has_an_answer_and_a_mark_of_its_own(store, take, marks):
    take("a", again=False)
    store.schedule("b", FAR_MS)

    answers = store.entries.schedule(
        [entry_of(marks, one, again=one == "a") for one in ("a", "b", "c", "d")]
    )

    assert [type(one).__name__ for one in answers] == [
        *("AlreadyTaken", "AlreadyScheduled", "Receipt", "Receipt")
    ]
    assert [is_taken(marks, one) for one in "abcd"] == [True, False, True, True]


def asked_of(store, marks, *, adopts=False):
    """A request of a worker that makes message `a` an entry; a test sends it, a bit later.

    A worker that *adopts* the message knows when it received it; a task that puts itself off does
    not.
    """
    now = clock.monotonic()
    new = [entry_of(marks, "a", again=True, received=now if adopts else None)]
    with mock.patch.object(
        clock, "monotonic", return_value=now
    ):  # received as Redis tells its time
        sent = requests.entries_sent(store, "schedule", lambda entries: entries.schedule(new))
    request = requests.request(
        store,
        "schedule",
        keep_ms=new[0].delivery.keep_ms,
        most_marks=new[0].delivery.most,
        entries=sent,
    )
    later(store)
    return request


def test_a_repeated_request_is_told_the_first_one_s_answer(store, marks):
    request = asked_of(store, marks)
    assert request.answer() == request.answer() == b"%d" % FAR_MS


@pytest.mark.parametrize(
    ("adopts", "anew", "answer"),
    [(True, False, b"scheduled"), (True, True, b"scheduled"), (False, False, b"again")],
    ids=["of a dead worker", "of a live worker that asks anew", "of its task that was put off"],
)
def test_a_request_stores_nothing_once_another_worker_let_the_message_through(
    store, marks, adopts, anew, answer
):
    """A live worker's connection to the broker broke, so the message was delivered again."""
    late = asked_of(store, marks, adopts=adopts)
    assert not is_taken(marks, "a")
    later(store)

    assert (late.anew() if anew else late).answer() == answer

    assert store.places("a") == []
    assert not is_taken(marks, "a")


def test_each_worker_that_lets_a_message_through_ends_what_was_asked_before(store, marks):
    assert not is_taken(marks, "a")
    later(store)
    late = asked_of(store, marks)
    assert not is_taken(marks, "a")
    assert late.answer() == b"again"


def test_the_task_that_was_let_through_can_put_itself_off(store, take, marks):
    assert not is_taken(marks, "a")
    take("a", again=True)
    assert store.places("a") == ["due"]
    assert is_taken(marks, "a")


def test_a_live_worker_that_puts_its_task_off_asks_anew(store, store_between, marks):
    """Its message was delivered again while it ran, and let through just before its request."""
    between, done = store_between.between, []

    def overtake():
        if not done:
            store.set_us(requests.now_us(store) + 1_000_000)
            done.append(is_taken(marks, "a"))

    between.before("schedule", overtake)
    store_between.entries.schedule([entry_of(marks, "a", again=True)])

    assert done == [False]
    assert between.asked["schedule"] == 2
    assert store.places("a") == ["due"]


def test_a_message_that_was_let_through_and_delivered_again_may_become_an_entry(store, marks):
    """The worker that let it through has given it back."""
    assert not is_taken(marks, "a")
    later(store)
    assert asked_of(store, marks, adopts=True).answer() == b"%d" % FAR_MS
    assert is_taken(marks, "a")


def test_a_message_given_to_another_worker_meanwhile_becomes_no_second_entry(store, take):
    """Its broker took it back, but the first worker goes on with it."""
    received = clock.monotonic()
    store.set_us(1000 * NOW_MS + 2_000_000)
    take("a", again=True)
    store.entries.change("a", Removal())

    with pytest.raises(AlreadyTaken):
        take("a", again=False, received=received)


def test_a_message_marked_before_it_was_received_is_another_one(store, take):
    take("a", again=True)
    store.entries.change("a", Removal())
    store.set_us(1000 * NOW_MS + 2_000_000)
    store.entries.change("nobody", Removal())  # its process learns the time
    take("a", again=False, received=clock.monotonic() - 1)
    assert store.places("a") == ["due"]


# Copies that arrive at workers: the first one stays the first, whichever attempt it is.


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1), (1, 7)])
def test_the_copy_that_arrives_first_stays_first(store, first, second):
    arrived = [store.arrive("one", attempt) for attempt in (first, second, first, second)]
    assert arrived == [first] * 4


@pytest.mark.parametrize(
    "texts",
    [
        ("a", "b", ""),
        ("ab", "", ""),
        ("b", "a", ""),
        ("", "a", "b"),
        ("a', 'b",),
        ("a", "b"),
        ("another",),
    ],
)
def test_another_hand_over_has_a_first_of_its_own_though_its_texts_look_alike(store, texts):
    store.arrive("a", "", "b", 1)
    assert store.arrive(*texts, 2) == 2
    assert store.arrive("a", "", "b", 2) == 1


@pytest.mark.parametrize("text", ["", "\x00", "\n", "{x}", "\ud800", "日本", "x" * 10_000])
def test_a_mark_is_of_one_size_whatever_it_names(store, text):
    store.arrive(text, 3)

    assert store.arrive(text, 1) == 3
    assert {len(one) for one in store.raw.hkeys(store.keys["arrived"])} == {
        16,
        len("since"),
        len("last"),
    }


@pytest.fixture(params=["copies", "entries"])
def marking(request, store, take, marks):
    """Functions that mark a message, and that return whether it is marked."""

    def is_known(name):
        with pytest.raises((AlreadyTaken, AlreadyScheduled)) as caught:
            take(name, again=True)
        is_known = isinstance(caught.value, AlreadyTaken)
        assert is_taken(marks, name) is is_known
        return is_known

    if request.param == "entries":
        return partial(take, again=False), is_known
    return lambda name: store.arrive(name, 1), lambda name: store.arrive(name, 2) == 1


def test_a_mark_is_known_until_the_next_generation_ends(store, marking):
    mark, is_known = marking
    mark("one")
    store.set_ms(NOW_MS + GENERATION_MS - 1)
    mark("last of the first")
    store.set_ms(NOW_MS + GENERATION_MS)
    mark("first of the second")
    assert marked(store) == [1, 2]
    store.set_ms(NOW_MS + 2 * GENERATION_MS - 1)
    assert is_known("one")
    assert is_known("last of the first")

    store.set_ms(NOW_MS + 2 * GENERATION_MS)
    mark("first of the third")

    assert marked(store) == [1, 1]
    assert not is_known("one")
    assert is_known("first of the second")


def test_a_longer_lease_makes_a_longer_generation(store):
    store.arrive("one", 1, lease=40.0)
    store.set_ms(NOW_MS + GENERATION_MS + 9_999)
    store.arrive("two", 1, lease=40.0)
    assert marked(store) == [2, 0]

    store.set_ms(NOW_MS + GENERATION_MS + 10_000)
    store.arrive("three", 1, lease=40.0)

    assert marked(store) == [1, 2]


@pytest.mark.parametrize("pauses", [1, 3])
def test_however_long_nothing_arrives_a_mark_is_known(store, pauses):
    """The broker or the workers were away for long: the next copy is still recognised."""
    store.arrive("before the last generation ended", 1)
    store.set_ms(NOW_MS + GENERATION_MS)
    for pause in range(1, pauses + 1):
        store.arrive(f"before pause {pause}", 1)
        store.set_ms(NOW_MS + GENERATION_MS + pause * 86_400_000)

    store.arrive("after the pauses", 1)

    assert store.arrive("before the last generation ended", 2) == 1
    assert marked(store) == [pauses + 1, 1]


@pytest.mark.parametrize(
    ("passed_ms", "ends"),
    [
        (PAUSE_MS, True),
        (PAUSE_MS + 1, False),
        *((-back_ms, False) for back_ms in (1, 1000, GENERATION_MS - 1)),
    ],
)
def test_a_generation_ages_by_at_most_a_minute_without_a_mark_and_by_no_clock_set_back(
    store, passed_ms, ends
):
    store.arrive("one", 1)
    store.set_ms(NOW_MS + passed_ms)
    store.arrive("two", 1)
    assert marked(store) == ([1, 1] if ends else [2, 0])


def test_a_generation_ends_as_well_when_it_has_so_many_marks(store, marking):
    store.set(remember=(3600, 3))
    mark, is_known = marking
    for number in range(3):
        mark(f"a{number}")
    assert marked(store) == [3, 0]

    for number in range(3):
        mark(f"b{number}")
    assert marked(store) == [3, 3]
    assert is_known("a0")

    mark("c")
    assert marked(store) == [1, 3]
    assert is_known("b0")


def test_a_copy_that_arrives_again_ends_no_generation_and_writes_nothing(store):
    store.arrive("one", 1)
    store.set_ms(NOW_MS + GENERATION_MS)
    before = store.snapshot()
    store.arrive("one", 1)
    store.arrive("one", 2)
    assert store.snapshot() == before


@pytest.mark.parametrize("field", ["since", "last"])
@pytest.mark.parametrize("value", ["99999999999999", "nan", "1e308", "-1", "x", ""])
def test_a_generation_with_a_wrong_age_does_not_last_for_ever(store, field, value):
    store.arrive("one", 1)
    store.raw.hset(store.keys["arrived"], field, value)
    for turn in range(1, 3):
        store.set_ms(NOW_MS + turn * GENERATION_MS)
        store.arrive(f"turn {turn}", 1)

    kept = [store.raw.hget(store.keys["arrived"], name) for name in ("since", "last")]
    assert kept[0] in {b"%d" % (NOW_MS + turn * GENERATION_MS) for turn in (1, 2)}
    assert kept[1] == b"%d" % (NOW_MS + 2 * GENERATION_MS)


@pytest.mark.parametrize("garbage", ["", "x", "\xff", "1:2"])
def test_a_mark_that_is_no_number_counts_as_none(store, garbage):
    store.arrive("one", 1)
    [mark] = set(store.raw.hkeys(store.keys["arrived"])) - {b"since", b"last"}
    store.raw.hset(store.keys["arrived"], mark, garbage)
    assert store.arrive("one", 2) == 2
    assert store.arrive("one", 1) == 2


def test_marks_are_spread_over_the_shards_and_found_again(store, monkeypatch):
    first, second = store.scripts, store.new_scripts()
    monkeypatch.setattr(second, "keys", Keys("delayq", 0, 2))
    asked = Copies([first, second], 30.0)
    names = [(f"a{number}",) for number in range(40)]
    soon = clock.monotonic() + 60
    assert {asked.first(name, 1, soon) for name in names} == {1}

    assert {asked.first(name, 2, soon) for name in names} == {1}
    counts = [store.raw.hlen(one.keys["arrived"]) - 2 for one in (first, second)]
    assert sum(counts) == 40
    assert min(counts) > 5
    second.connection.close()
