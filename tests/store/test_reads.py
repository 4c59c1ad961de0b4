"""Reads: one entry, the lists with their cursors, the queues, and tags."""

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import (
    Entries,
    Listing,
    NewEntry,
    Outcome,
    State,
    counts,
    label_of,
    listing,
)
from celery_delayq.core.store.changes import Move, Removal
from celery_delayq.core.store.listing import ALL, ListCursor
from celery_delayq.core.store.record import Extras, header_for, labels_for, lane_for
from celery_delayq.core.store.schedule import Addition
from celery_delayq.core.store.selection import Filter
from celery_delayq.errors import InvalidOption
from tests.store.arguments import arguments
from tests.store.support import FAR_MS, MEMBERSHIP, NOW_MS, PLACES, ROUTE, Store, new_record

pytestmark = pytest.mark.core


# One entry, the counts, and what falls due.


def test_an_entry_that_is_not_scheduled_is_none(store):
    store.schedule("gone")
    store.steps().hand_over()
    assert store.entries.find("gone") is store.entries.find("never") is None
    assert store.entries.state("gone") is store.entries.state("never") is None


def test_the_time_of_a_hand_over_is_known_for_a_while(store):
    store.schedule("a")
    store.schedule("cancelled", FAR_MS)
    store.set_ms(NOW_MS + 5)
    assert store.entries.handed_over_ms("a") is None
    store.steps().hand_over()
    store.entries.change("cancelled", Removal())
    assert store.entries.handed_over_ms("a") == NOW_MS + 5
    assert store.entries.handed_over_ms("cancelled") is store.entries.handed_over_ms("b") is None


STATES = {
    **dict.fromkeys(("due", "relay", "refused"), State.SCHEDULED),
    "parked": State.PAUSED,
    "leased": State.IN_FLIGHT,
    "dead": State.DEAD,
}


@pytest.mark.parametrize("place", STATES)
def test_the_place_of_an_entry_is_its_state(store, place):
    store.at(place)
    assert store.entries.state("a") is store.entries.find("a").state is STATES[place]


def test_a_due_time_of_zero_is_listed_and_counted(store):
    store.schedule("a", 0)
    assert [entry.task_id for entry in store.entries.waiting(Listing(0, 1))] == ["a"]
    found = store.entries.counts()
    assert (found.next_due_ms, found.oldest_overdue_ms) == (0, 0)


# How many fall due in each of some spans of time.


def falling_due(store, span_ms, spans, **after):
    return counts.falling_due(store.entries.shards, span_ms, spans, **after)


def test_each_entry_is_counted_in_the_span_in_which_it_is_due(store):
    assert falling_due(store, 60_000, 1000) == (NOW_MS, [0] * 1000)
    for number, after in enumerate((-5, 0, 1, 10, 11, 20, 30, 31)):
        put = store.schedule_relayed if number % 2 else store.schedule
        put(f"task-{number}", NOW_MS + after)
    assert falling_due(store, 10, 3) == (NOW_MS, [2, 2, 1])
    assert falling_due(store, 31, 1) == (NOW_MS, [6])


def test_the_spans_can_begin_at_any_time(store):
    for number, after in enumerate((-1001, -1000, -999, 0, 1)):
        store.schedule(f"task-{number}", NOW_MS + after)
    assert falling_due(store, 1000, 2, after_ms=NOW_MS - 1001) == (NOW_MS, [2, 2])
    assert falling_due(store, 1000, 1, after_ms=0) == (NOW_MS, [0])


# A listing has all waiting entries, of every place, in due order; a cursor continues it.


END = 2**53
LATE = Extras(grace_ms=10**9)


@pytest.fixture
def small_pages(limits):
    limits(page=3)


def ids(entries):
    return [entry.task_id for entry in entries]


def page(store, cursor=None, size=50, earliest=0, end=END, **asked):
    entries = store.entries.waiting(Listing(earliest, end, cursor=cursor, size=size, **asked))
    return list(itertools.islice(entries, size))


def paged(store, size, **asked):
    """All listed entries; each page begins behind the last one's cursor, stored as text."""
    cursor = None
    while some := page(store, cursor, size, **asked):
        yield from some
        cursor = some[-1].cursor


def put(
    store,
    task_id,
    due_ms=NOW_MS,
    *,
    relayed=False,
    queue="celery",
    late=False,
    tags=(),
    share=False,
):
    where = header_for("R", ROUTE) if relayed else header_for("L", queue)
    record = replace(new_record(task_id, where, share=share), labels=labels_for("t", queue))
    extras = replace(LATE if late else Extras(), tags=tags)
    store.put(task_id, record.with_extras(extras), due_ms)


PARKED = list(itertools.product(("mail", "slow"), (False, True), (False, True)))


def everywhere(store):
    """Some entries in each place of waiting ones, with few due times; their ids in due order."""
    store.raw.hset(store.keys["meta"], "seq", 250)  # their numbers pass the first byte's end
    expected = []

    def some(name, first_ms, **options):
        for step in range(7):
            tags, share = (f"step{step}", "all"), step % 2 == 0
            put(store, f"{name}{step}", first_ms + step % 3, tags=tags, share=share, **options)
            expected.append((first_ms + step % 3, len(expected), f"{name}{step}"))

    shard_steps = store.steps()
    some("refused", NOW_MS - 5, relayed=True)
    store.take("refused", *(f"refused{step}" for step in range(7)), reason="NO")
    for queue in ("mail", "slow"):
        store.entries.pause(lane_for(queue=queue), queue)
    for number, (queue, relayed, late) in enumerate(PARKED):
        some(f"parked{number}.", NOW_MS - 4, queue=queue, relayed=relayed, late=late)
    shard_steps.hand_over()
    assert shard_steps.claim(100)[0] == []
    some("overdue", NOW_MS - 3, relayed=True)
    some("due", FAR_MS)
    some("relay", FAR_MS, relayed=True)
    counts = store.entries.counts()
    assert (counts.refused, counts.paused, counts.scheduled) == (7, 56, 28)
    return [task_id for _, _, task_id in sorted(expected)]


def test_all_waiting_entries_are_listed_in_due_order_over_all_pages(store, small_pages):
    expected = everywhere(store)
    assert ids(store.entries.waiting(Listing(0, END))) == expected
    for size in (1, 2, 5, 7, 50):
        assert ids(paged(store, size)) == expected
    waiting_now = ids(store.entries.waiting(Listing(0, NOW_MS + 1)))
    assert waiting_now == [one for one in expected if not one.startswith(("due", "relay"))]


BY_TAG = Filter(tags=("all",))


@pytest.mark.parametrize("chosen", [ALL, BY_TAG], ids=["all", "by tag"])
def test_the_newest_come_first_where_that_is_asked_for(store, chosen):
    newest_first = everywhere(store)[::-1]
    asked = {"newest_first": True, "chosen": chosen}
    assert ids(store.entries.waiting(Listing(0, END, **asked))) == newest_first
    for size in (1, 2, 5, 50):
        assert ids(paged(store, size, **asked)) == newest_first
    overdue = [one for one in newest_first if not one.startswith(("due", "relay"))]
    assert ids(store.entries.waiting(Listing(NOW_MS - 3, NOW_MS + 1, **asked))) == [
        one for one in overdue if store.entries.find(one).due_ms >= NOW_MS - 3
    ]


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_cursor_goes_on_by_tag_and_without_alike(store, newest_first):
    everywhere(store)
    asked = {"newest_first": newest_first}
    listed, tagged = (page(store, size=200, chosen=one, **asked) for one in (ALL, BY_TAG))
    assert [(one.task_id, one.cursor) for one in listed] == [
        (one.task_id, one.cursor) for one in tagged
    ]
    for place, entry in enumerate(listed):
        for chosen in (ALL, BY_TAG):
            after = page(store, entry.cursor, 4, chosen=chosen, **asked)
            assert ids(after) == ids(listed[place + 1 : place + 5])


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize(
    ("chosen", "fits"),
    [
        (Filter(queues=("mail",)), lambda one: one[6:7] in "0123" and one.startswith("parked")),
        (Filter(queues=("mail", "slow")), lambda one: one.startswith("parked")),
        (Filter(queues=("none",)), lambda _: False),
        (Filter(tasks=("t",), queues=("celery",)), lambda one: not one.startswith("parked")),
        (Filter(tasks=("other",)), lambda _: False),
        (Filter(tags=("step1", "step4")), lambda one: one[-1] in "14"),
        (Filter(tags=("step1",), queues=("celery",)), lambda one: one in CELERY_1),
        (Filter(tags=("none",)), lambda _: False),
    ],
)
def test_a_list_of_some_has_these_and_no_others(store, limits, chosen, fits, newest_first):
    limits(page=8)
    expected = [one for one in everywhere(store)[:: -1 if newest_first else 1] if fits(one)]
    asked = {"chosen": chosen, "newest_first": newest_first}
    assert ids(store.entries.waiting(Listing(0, END, **asked))) == expected
    assert ids(paged(store, 3, **asked)) == expected


CELERY_1 = {"refused1", "overdue1", "due1", "relay1"}


def test_a_list_of_some_sends_no_others_and_takes_a_step_for_a_page(store):
    for step in range(listing.PAGE * 2):
        put(store, f"a{step}", FAR_MS + step, queue="mail" if step == listing.PAGE else "other")
    assert page(store, size=1)  # the script is sent once
    store.raw.config_resetstat()
    [found] = store.entries.waiting(Listing(0, END, chosen=Filter(queues=("mail",)), size=1))
    assert found.task_id == f"a{listing.PAGE}"
    assert store.raw.info("commandstats")["cmdstat_evalsha"]["calls"] == 3
    nothing = Filter(queues=("x",)).text
    reply = store.scripts.call(
        "page",
        newest=0,
        after="-1",
        order=-1,
        first=0,
        before=END,
        filter=nothing,
        limit=9,
        max_bytes=listing.PAGE_BYTES,
        most=listing.REFUSED,
    )
    assert (reply.found, reply.templates, reply.is_last) == ([], [], 0)


@pytest.mark.parametrize("chosen", [ALL, BY_TAG], ids=["all", "by tag"])
def test_a_dead_entry_and_one_in_flight_are_left_out(store, chosen):
    for task_id in ("dead", "flying", "waits"):
        put(store, task_id, NOW_MS, relayed=True, tags=("all",))
    store.take("dead", "dead")
    store.take("leased", "flying")
    assert ids(store.entries.waiting(Listing(0, END, chosen=chosen))) == ["waits"]


def test_by_tag_what_leaves_or_is_moved_while_it_is_read_comes_in_its_old_place_or_not(
    store, limits
):
    limits(list_read=2)
    for step in range(6):
        put(store, f"a{step}", FAR_MS + step, tags=("x",))
    entries = store.entries.waiting(Listing(0, END, chosen=Filter(tags=("x",))))
    assert next(entries).task_id == "a0"
    store.entries.change("a3", Removal())
    store.entries.change("a4", Move(When("at", FAR_MS - 9)))
    store.raw.hset(store.keys["records"], "a5", "? of another program")
    assert ids(entries) == ["a1", "a2", "a4"]


def test_by_tag_what_cannot_be_read_or_only_the_index_has_is_left_out(store):
    for task_id, tag in (("a", "x"), ("b", "xy")):
        put(store, task_id, FAR_MS, tags=(tag,))
    store.schedule("c", FAR_MS, share=True, extras=Extras(tags=("x",)))
    (member,) = store.raw.zrange(store.keys["due"], 1, 1)
    store.raw.zadd(store.keys["tags"], {b"x\0" + member: 0})  # b, as an aborted script leaves it
    store.raw.delete(store.keys["templates"])
    for tags in (("x",), ("x", "none")):
        assert ids(store.entries.waiting(Listing(0, END, chosen=Filter(tags=tags)))) == ["a"]


def test_a_tag_of_too_many_is_refused_and_the_error_names_the_way(store, limits):
    limits(list_most=3)
    for step in range(4):
        put(store, f"a{step}", FAR_MS + step, tags=("x",), queue="mail" if step else "other")
    chosen = Filter(tags=("x",), queues=("mail",))
    assert ids(store.entries.waiting(Listing(0, END, chosen))) == ["a1", "a2", "a3"]
    with pytest.raises(InvalidOption) as caught:
        list(store.entries.waiting(Listing(0, END, chosen=Filter(tags=("x",)))))
    assert str(caught.value) == (
        "tag is 'x'; expected a tag of at most 100,000 waiting tasks, as they are sorted first; "
        "for more use select"
    )


def test_an_entry_tells_its_state_and_what_went_wrong(store):
    everywhere(store)
    found = {entry.task_id: entry for entry in store.entries.waiting(Listing(0, END))}
    for task_id, entry in found.items():
        assert entry == store.entries.find(task_id)
    refused, parked = found["refused0"], found["parked0.0"]
    assert (refused.state, refused.facts.attempts, refused.facts.error) == (
        State.SCHEDULED,
        1,
        "NO",
    )
    assert refused.facts.next_try_ms == NOW_MS + 60_000
    assert (parked.state, parked.facts.next_try_ms) == (State.PAUSED, None)


@pytest.mark.parametrize("paused", [False, True], ids=["waits", "parked"])
def test_an_entry_that_waits_again_after_its_next_try_shows_its_last_error(store, paused):
    put(store, "a", relayed=True)
    put(store, "b", relayed=True)
    store.take("refused", "a", wait=1, reason="NO")
    store.set_ms(NOW_MS + 1001)
    store.steps().hand_over()
    store.take("uncertain", "a")
    if paused:
        store.entries.pause(lane_for(queue="celery"), "celery")
        store.take("parked", "a")

    [entry] = [one for one in page(store) if one.task_id == "a"]

    facts = entry.facts
    assert (facts.attempts, facts.error, facts.next_try_ms) == (2, "NO", None)
    assert entry.state is (State.PAUSED if paused else State.SCHEDULED)
    assert replace(entry, cursor="") == store.entries.find("a")


def test_bounds_hold_beside_a_cursor(store):
    for step in range(9):
        put(store, f"a{step}", FAR_MS + step)
    third = page(store)[2].cursor
    assert ids(page(store, third, earliest=FAR_MS + 5)) == ["a5", "a6", "a7", "a8"]
    assert ids(page(store, third, earliest=FAR_MS + 1, end=FAR_MS + 5)) == ["a3", "a4"]
    assert ids(page(store, third, end=FAR_MS + 2)) == []


def test_an_entry_that_moves_between_places_meanwhile_is_met_once(store):
    names = [f"a{step}" for step in range(30)]
    for step, name in enumerate(names):
        put(store, name, NOW_MS + step // 5, relayed=True, queue="mail")
    store.set_ms(NOW_MS + 10)
    shard_steps, mail = store.steps(), lane_for(queue="mail")
    moves = iter(
        [
            lambda: store.entries.pause(mail, "mail") or store.take("parked", *names),
            lambda: store.entries.resume(mail) and shard_steps.hand_over(),
            lambda: store.take("refused", *names),
            lambda: store.set_ms(NOW_MS + 61_000) or shard_steps.hand_over(),
        ]
    )
    places, seen, cursor = [["relay"]], [], None
    while some := page(store, cursor, 6):
        seen += ids(some)
        cursor = some[-1].cursor
        next(moves, lambda: None)()
        places.append(store.places("a29"))
    assert seen == [f"a{step}" for step in range(30)]
    assert places == [["relay"], ["parked"], ["relay"], ["refused"], ["relay"], ["relay"]]


@pytest.mark.parametrize("moved", [0.1, -0.1, 0.25, 0.5, 0.75])
def test_a_due_time_that_is_no_whole_number_neither_stops_a_listing_nor_repeats(
    store, small_pages, moved
):
    for step in range(6):
        put(store, f"a{step}", FAR_MS)
        member = store.raw.zrange(store.keys["due"], -1, -1)[0]
        store.raw.zadd(store.keys["due"], {member: FAR_MS + step * moved})
    expected = [member[6:].decode() for member in store.raw.zrange(store.keys["due"], 0, -1)]
    for listed in (paged(store, 2), store.entries.waiting(Listing(0, END))):
        assert ids(itertools.islice(listed, 100)) == expected


def test_of_very_many_refused_ones_those_are_listed_that_are_tried_next(store, limits):
    limits(page_refused=3)
    for step in range(5):
        store.at("refused", f"a{step}", wait=60 - step)
    assert ids(store.entries.waiting(Listing(0, END))) == ["a2", "a3", "a4"]


def test_a_lane_whose_name_nobody_gave_ends_the_listing_all_the_same(store):
    put(store, "a", FAR_MS)
    store.raw.zadd(store.keys["parked"], {b"\xff" * 900: 0, b"": 0, b"q": 0, b"*" * 14: 0})
    assert ids(store.entries.waiting(Listing(0, END))) == ["a"]


@pytest.mark.parametrize("equal", [True, False], ids=["equal times", "different times"])
def test_entries_that_come_and_go_make_a_listing_neither_skip_nor_repeat_another(
    store, small_pages, equal
):
    due = itertools.repeat(FAR_MS) if equal else itertools.count(FAR_MS, 10)
    stay = [f"stay{step}" for step in range(30)]
    for task_id, due_ms in zip(stay, due, strict=False):
        store.schedule(task_id, due_ms)
    go = [f"go{step}" for step in range(10)]
    for step, task_id in enumerate(go):
        store.schedule(task_id, FAR_MS if equal else FAR_MS + 30 * step + 5)
    seen = []
    for number, entry in enumerate(store.entries.waiting(Listing(0, END))):
        seen.append(entry.task_id)
        if number < 10:
            store.entries.change(go[number], Removal())
            store.schedule(f"come{number}", FAR_MS if equal else FAR_MS + 20 * number + 3)
            store.reschedule(f"come{number}", When("by", -1))
    assert [task_id for task_id in seen if task_id in stay] == stay
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("span", [1, 1000, 10**9])
def test_a_listing_ends_though_each_task_of_it_is_rescheduled(store, small_pages, span):
    expected = [f"a{step}" for step in range(20)]
    for step, task_id in enumerate(expected):
        (store.schedule if step % 3 else store.schedule_relayed)(task_id, FAR_MS + step)
    listed = []
    for entry in itertools.islice(store.entries.waiting(Listing(0, END)), 100):
        listed.append(entry.task_id)
        store.reschedule(entry.task_id, When("by", span))
    assert sorted(listed, key=expected.index) == expected


def test_a_member_of_somebody_else_s_hides_no_entry(store, small_pages):
    for step in range(10):
        store.schedule(f"a{step}", FAR_MS)
    strangers = ["", "x", b"\0\0\0\0\0", b"\xff\xff\xff\xff\xff", b"\xff" * 6, "another program's"]
    store.raw.zadd(store.keys["due"], dict.fromkeys(strangers, FAR_MS))
    store.raw.zadd(store.keys["due"], {"before": "-inf", "behind": "+inf"})
    listed = ids(itertools.islice(store.entries.waiting(Listing(0, END)), 100))
    assert listed == [f"a{step}" for step in range(10)]


def test_a_page_ends_after_its_bound_in_bytes_and_the_next_goes_on(store, limits):
    limits(page_bytes=5000)
    for step in range(20):
        store.schedule(f"a{step}", FAR_MS, payload="x" * 1000)
    asked = Counter()
    store.scripts.on_call = lambda name, _: asked.update([name])
    assert ids(store.entries.waiting(Listing(0, END))) == [f"a{step}" for step in range(20)]
    assert asked["page"] == 20 / 5


# Cursors.


NO_CURSORS = [
    *("", "x", ":", ":::", "ab:0:1", "ab:0:x:1", "ab:0:nan:1", "ab:0:1:-1", "ab:-1:1:1"),
    *("ab:0:1:1 ", "ab:0:1:1\n", "ab:0:1:" + "9" * 16, "ab:100:1:1", "\udcff"),
]


@pytest.mark.parametrize("text", NO_CURSORS)
def test_an_invalid_cursor_is_an_error_at_the_call(store, text):
    with pytest.raises(ValueError, match="cursor"):
        ListCursor.read(text)
    with pytest.raises(ValueError, match="cursor"):
        store.entries.waiting(Listing(0, END, cursor=text))


def test_a_cursor_of_another_store_is_an_error_at_the_call(store):
    put(store, "a", FAR_MS)
    cursor = page(store)[0].cursor
    store.raw.flushall()
    store.set_ms(NOW_MS)
    with pytest.raises(ValueError, match="cursor"):
        store.entries.waiting(Listing(0, END, cursor=cursor))
    put(store, "a", FAR_MS)
    with pytest.raises(ValueError, match="cursor"):
        store.entries.waiting(Listing(0, END, cursor=cursor))


def test_a_cursor_of_a_shard_that_is_not_here_is_an_error(store):
    put(store, "a", FAR_MS)
    cursor = replace(ListCursor.read(page(store)[0].cursor), shard=1)
    with pytest.raises(ValueError, match="cursor"):
        store.entries.waiting(Listing(0, END, cursor=str(cursor)))


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("chosen", [ALL, BY_TAG, Filter(queues=("celery",))])
def test_over_shards_a_cursor_goes_on_in_each(redis_server, chosen, newest_first):
    asked = {"chosen": chosen, "newest_first": newest_first}
    redis_server.client().flushall()
    stores = [Store(redis_server, prefix=f"p{shard}") for shard in range(3)]
    shards = Entries([one.scripts for one in stores], MEMBERSHIP)
    for step in range(30):
        put(stores[step % 3], f"a{step}", FAR_MS + step // 10, tags=("all",))
    expected = ids(shards.waiting(Listing(0, END, **asked)))
    assert [int(one[1:]) // 10 for one in expected] == sorted([0, 1, 2] * 10, reverse=newest_first)
    assert sorted(expected) == sorted(f"a{step}" for step in range(30))
    for size in (1, 4):
        seen, cursor = [], None
        while some := list(
            itertools.islice(
                shards.waiting(Listing(0, END, cursor=cursor, size=size, **asked)), size
            )
        ):
            seen += ids(some)
            cursor = some[-1].cursor
        assert seen == expected
    for one in stores:
        one.close()


def test_listing_takes_one_step_a_page(store):
    for step in range(20):
        put(store, f"a{step}", FAR_MS, relayed=bool(step % 2))
    *_, last = itertools.islice(store.entries.waiting(Listing(0, END, size=10)), 10)
    for cursor, steps in ((None, 1), (last.cursor, 2)):  # the cursor's owner, and the page
        store.raw.config_resetstat()
        assert len(page(store, cursor, 5)) == 5
        assert store.raw.info("commandstats")["cmdstat_evalsha"]["calls"] == steps


# Waiting entries per queue, counted in due order; and the entry that is overdue longest.


CELERY, MAIL = label_of("celery"), label_of("mail")
UNREADABLE = b""


def by_label(store, most=10_000):
    """The number of waiting and overdue entries per label; and whether all were counted."""
    tallies, is_complete = store.entries.tallies(most)
    return {one.label: (one.waiting, one.overdue) for one in tallies}, is_complete


def small_steps(limits, size=3, steps=40):
    limits(queues_step=size, queues_steps=steps)


def calls_of(store, name):
    """Record a script's arguments in each call from here on."""
    seen = []
    store.scripts.on_call = lambda script, given: script == name and seen.append(given)
    return seen


def test_the_entries_of_each_queue_are_counted_and_the_overdue_ones_among_them(store):
    store.schedule("a", NOW_MS, queue="mail")
    store.schedule("b", NOW_MS + 1, queue="mail")
    store.schedule("c", NOW_MS - 5)
    store.schedule_relayed("d", NOW_MS)
    store.schedule_relayed("e", FAR_MS)
    assert by_label(store) == ({MAIL: (2, 1), CELERY: (3, 2)}, True)


def test_an_entry_in_flight_dead_or_parked_does_not_wait(store):
    store.at("dead", "dead")
    store.at("leased", "flying")
    store.at("parked", "parked", queue="mail")
    store.schedule("waits", FAR_MS)
    assert by_label(store) == ({CELERY: (1, 0)}, True)


def test_a_refused_entry_is_overdue_whenever_it_is_tried_again(store):
    store.at("refused", wait=300)
    store.schedule("b", FAR_MS)
    assert by_label(store) == ({CELERY: (2, 1)}, True)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 500])
def test_over_all_steps_each_entry_is_counted_once(store, limits, share, size):
    small_steps(limits, size)
    store.raw.hset(store.keys["meta"], "seq", 250)  # the numbers get a carry
    for step in range(20):
        put = store.schedule_relayed if step % 3 == 0 else store.schedule
        put(f"a{step}", FAR_MS + (step * 7) % 5, share=share)
    assert by_label(store) == ({CELERY: (20, 0)}, True)


@pytest.mark.parametrize(("refused", "is_complete"), [(3, True), (4, False)])
def test_refused_entries_are_counted_once_and_no_more_than_fill_a_step(
    store, limits, refused, is_complete
):
    small_steps(limits)
    store.at("refused", *(f"r{step}" for step in range(refused)))
    for step in range(4):
        store.schedule(f"a{step}", FAR_MS)
    assert by_label(store) == ({CELERY: (7, 3)}, is_complete)


def test_no_more_is_looked_at_than_may_be_and_the_overdue_ones_come_first(store, limits):
    small_steps(limits, 5)
    for step in range(30):
        store.schedule(f"later{step}", FAR_MS + step)
    for step in range(4):
        store.schedule_relayed(f"late{step}", NOW_MS - step)
    assert by_label(store, 10) == ({CELERY: (10, 4)}, False)
    assert by_label(store, 12) == ({CELERY: (12, 4)}, False)
    assert by_label(store, 34) == ({CELERY: (34, 4)}, True)


def test_no_more_is_looked_at_if_some_are_refused_and_others_wait_behind_a_key(store):
    held = [Extras(key, hold="w60000") for key in "kl"]
    for extras in held:
        store.schedule(extras.key, NOW_MS, extras=extras)
    store.steps().hand_over()
    for extras in held:
        store.schedule(f"{extras.key}2", FAR_MS, extras=extras, conflict="replace")
        assert store.places(f"{extras.key}2") == ["behind"]
    store.at("refused", "r")
    assert by_label(store, 2) == ({CELERY: (2, 1)}, False)
    assert by_label(store, 3) == ({CELERY: (3, 1)}, True)


def test_entries_that_come_back_from_a_pause_count_towards_the_limit(store):
    store.entries.pause(lane_for(), "")
    for step in range(3):
        store.schedule(f"late{step}", NOW_MS)
    store.steps().hand_over()
    store.entries.resume(lane_for())
    for step in range(4):
        store.schedule(f"later{step}", FAR_MS)
    assert by_label(store, 5) == ({CELERY: (5, 3)}, False)
    assert by_label(store, 7) == ({CELERY: (7, 3)}, True)


def test_a_count_of_queues_ends_where_records_are_large(store, limits):
    limits(queues_step_bytes=5000, queues_steps=3)
    for step in range(20):
        store.schedule(f"a{step}", FAR_MS, payload="x" * 2000)
    calls = calls_of(store, "queues")
    assert by_label(store) == ({CELERY: (9, 0)}, False)
    assert len(calls) == 3


@pytest.mark.parametrize("payload", ["x" * 100, "x" * 6000], ids=["small", "large"])
def test_a_step_reads_no_more_than_its_bytes_allow(store, payload):
    for step in range(20):
        store.schedule(f"a{step}", FAR_MS, payload=payload)
    size = len(store.record("a0"))
    looked, *_ = store.scripts.call("queues", **arguments("queues", max_bytes=size * 3 - 1))
    assert looked == 3


def test_entries_that_leave_between_two_steps_make_it_skip_no_other(store, limits):
    small_steps(limits)
    for step in range(12):
        store.schedule(f"a{step}", FAR_MS + step)
    steps, gone = itertools.count(), iter([f"a{step}" for step in range(12)])

    def leave(script, _):
        if script == "queues" and next(steps):
            for task_id in (next(gone), next(gone)):
                store.entries.change(task_id, Removal())

    store.scripts.on_call = leave
    # When the second step begins, two of the first three have left; it begins at the fourth.
    assert by_label(store) == ({CELERY: (12, 0)}, True)


def test_an_unreadable_entry_is_of_no_queue(store):
    for task_id in ("gone", "foreign", "cut", "sound"):
        store.schedule(task_id, NOW_MS)
    store.raw.hdel(store.keys["records"], "gone")
    store.raw.hset(store.keys["records"], "foreign", b"0" + store.record("foreign")[1:])
    store.raw.hset(store.keys["records"], "cut", store.record("cut")[:40])
    assert by_label(store) == ({UNREADABLE: (3, 3), CELERY: (1, 1)}, True)


def test_neighbours_that_differ_only_behind_their_header_are_told_apart(store):
    for step, queue in enumerate(("mail", "celery", "mail", "celery")):
        store.schedule(f"a{step}", FAR_MS + step, queue=queue, to="one list")
    store.schedule("damaged", FAR_MS + 9, to="one list")
    record = store.record("damaged")
    start = record.index(b"one list") + len("one list") + 6
    spoilt = record[:start] + b"x" * 13 + record[start + 13 :]
    store.raw.hset(store.keys["records"], "damaged", spoilt)
    assert by_label(store) == ({MAIL: (2, 0), CELERY: (2, 0), UNREADABLE: (1, 0)}, True)


def test_the_tally_of_a_queue_shows_where_one_of_its_entries_goes(store):
    store.schedule("a", FAR_MS, queue="mail", to="the list")
    store.schedule_relayed("b", FAR_MS)
    tallies, _ = store.entries.tallies(10)
    places = {one.label: (one.kind, one.place[:8]) for one in tallies}
    assert places == {MAIL: ("L", "the list"), CELERY: ("R", '{"exchan')}


def test_members_of_somebody_else_s_keep_a_count_of_queues_from_nothing(store, limits):
    small_steps(limits)
    for step in range(10):
        store.schedule(f"a{step}", FAR_MS)
    strangers = ["", "x", b"\0\0\0\0\0", b"\xff" * 6, "another program's"]
    store.raw.zadd(store.keys["due"], dict.fromkeys(strangers, FAR_MS))
    store.raw.zadd(store.keys["due"], {"before": "-inf", "behind": "+inf"})
    counted, is_complete = by_label(store)
    assert counted[CELERY] == (10, 0)
    assert is_complete


def oldest(store):
    return store.entries.counts().oldest_overdue_ms


def by_state(store):
    counts = store.entries.counts()
    return counts.scheduled, counts.overdue, counts.refused, counts.paused


def test_nothing_is_overdue_one_millisecond_early(store):
    assert oldest(store) is None
    store.schedule("a", NOW_MS + 1)
    store.schedule_relayed("b", NOW_MS + 1)
    store.schedule_relayed("c", NOW_MS + 2)
    assert (by_state(store), oldest(store)) == ((3, 0, 0, 0), None)
    store.set_ms(NOW_MS + 1)
    assert (by_state(store), oldest(store)) == ((3, 2, 0, 0), NOW_MS + 1)


def test_the_oldest_overdue_entry_is_looked_for_wherever_it_waits(store):
    store.schedule("a", NOW_MS - 10)
    assert oldest(store) == NOW_MS - 10
    store.schedule_relayed("b", NOW_MS - 20)
    assert oldest(store) == NOW_MS - 20
    store.schedule_relayed("c", NOW_MS - 30)
    claims = store.take("leased", "c", "b")
    assert oldest(store) == NOW_MS - 10
    store.steps().nack("refused", claims[:1], wait=300)
    assert oldest(store) == NOW_MS - 30


def test_a_due_and_paused_entry_counts_the_same_before_a_scanner_has_met_it(store):
    store.entries.pause(lane_for(queue="mail"), "mail")
    store.schedule("first", NOW_MS - 12, queue="mail")
    store.schedule("next", NOW_MS - 11, queue="celery")
    store.schedule("last", NOW_MS - 10, queue="mail")
    store.schedule("not due", FAR_MS, queue="mail")
    counts = store.entries.counts()
    assert by_state(store) == (2, 1, 0, 2)
    assert (counts.next_due_ms, counts.oldest_overdue_ms) == (NOW_MS - 11, NOW_MS - 11)
    assert by_label(store)[0] == {CELERY: (1, 1), MAIL: (1, 0)}
    store.entries.change("next", Removal())
    assert store.entries.counts().next_due_ms == FAR_MS
    store.steps().hand_over()
    assert by_state(store) == (1, 0, 0, 2)


@pytest.mark.parametrize("bound", ["overdue_seen", "overdue_bytes"])
def test_a_paused_entry_behind_as_many_as_are_looked_at_counts_as_overdue(store, limits, bound):
    store.entries.pause(lane_for(queue="mail"), "mail")
    for step in range(4):
        store.schedule(f"a{step}", NOW_MS - 10 + step, queue="mail")
    size = len(store.record("a0"))
    limits(**{bound: 3 if bound == "overdue_seen" else size * 3 - 1})
    assert by_state(store) == (1, 1, 0, 3)
    assert store.entries.counts().next_due_ms == oldest(store) == NOW_MS - 7
    store.entries.change("a3", Removal())
    assert oldest(store) is None


@pytest.mark.parametrize(("looked_at", "age"), [(3, 20), (2, 10)])
def test_a_refused_entry_is_as_old_as_its_due_time_if_it_is_among_those_tried_next(
    store, limits, looked_at, age
):
    for step, wait in enumerate((10, 50, 200)):
        store.at("refused", f"a{step}", due_ms=NOW_MS - 10 * step, wait=wait)
    limits(overdue_seen=looked_at)
    assert oldest(store) == NOW_MS - age


@pytest.mark.parametrize("paused", [49, 50, 51, 120, 299])
def test_over_all_slices_what_is_paused_is_passed(store, paused):
    store.entries.pause(lane_for(queue="mail"), "mail")
    for step in range(paused):
        store.schedule(f"a{step}", NOW_MS - 500 + step, queue="mail")
    assert oldest(store) is None
    store.schedule("b", NOW_MS - 3)
    assert oldest(store) == NOW_MS - 3


def test_an_unreadable_entry_is_overdue_as_well(store):
    store.schedule("a", NOW_MS - 10)
    store.raw.hset(store.keys["records"], "a", "spoilt")
    assert oldest(store) == NOW_MS - 10
    store.entries.pause(lane_for(), "")
    assert oldest(store) == NOW_MS - 10


# Tags lead to an entry in any place, and to nothing once it has left, by any way.


TAGGED = Extras("k", ("one", "two", "ü"), 10**12)
OTHER = Extras("k", ("two", "three"))


def tags(store):
    """Ids by tag."""
    found = {}
    for one in store.raw.zrange(store.keys["tags"], 0, -1):
        tag, _, member = one.partition(b"\0")
        found.setdefault(tag.decode(), []).append(member[6:].decode())
    return found


def of(*ids):
    return {tag: list(ids) for tag in sorted(TAGGED.tags)}


def of_other(task_id):
    return {"two": [task_id], "three": [task_id]}


def schedule(store, task_id, extras=OTHER, conflict="replace", kind="L", **options):
    destination = header_for(kind, "celery" if kind == "L" else ROUTE)
    record = new_record(task_id, destination, share=True).with_extras(extras)
    (answer,) = store.entries.schedule(
        [NewEntry(task_id, When("at", FAR_MS), record, conflict)], Addition(**options)
    )
    assert not isinstance(answer, Exception)


@pytest.mark.parametrize("kind", ["schedule", "schedule_relayed"])
def test_each_tag_of_an_entry_leads_to_it(store, kind):
    getattr(store, kind)("a", FAR_MS, extras=TAGGED)
    getattr(store, kind)("b", FAR_MS, extras=Extras("", ("two",)))

    assert tags(store) == {**of("a"), "two": ["a", "b"]}
    assert store.entries.find("a").extras == TAGGED
    store.check()


@pytest.mark.parametrize("place", PLACES)
def test_in_every_place_an_entry_has_its_tags(store, place):
    store.at(place, extras=TAGGED)
    assert tags(store) == of("a")
    store.check()


def test_members_of_a_tag_are_in_the_order_of_their_scheduling(store):
    for number in reversed(range(300)):
        store.schedule(f"a{number}", FAR_MS - number, extras=Extras("", ("t",)))

    assert tags(store) == {"t": [f"a{number}" for number in reversed(range(300))]}


def reclaim(store, _):
    assert store.steps().reclaim() == ["a"]


def cancel(expected):
    def step(store, _):
        assert store.entries.change("a", Removal())[0] is expected

    return step


def move(store, _):
    assert store.reschedule("a", When("at", FAR_MS))[0] is Outcome.DONE
    assert store.entries.find("a").extras == TAGGED
    assert store.raw.hget(store.keys["holders"], "k") == b"a"


# The place of the entry, a step, and the tags after it.
STEPS = {
    "handed over": ("due", lambda store, _: store.steps().hand_over(), {}),
    "acknowledged": ("leased", lambda store, claims: store.steps().ack(claims), {}),
    "given back": ("leased", lambda store, claims: store.steps().nack("unknown", claims), of("a")),
    "reclaimed": ("lapsed", reclaim, of("a")),
    "cancelled": ("due", cancel(Outcome.DONE), {}),
    "cancelled after its lease": ("lapsed", cancel(Outcome.UNCERTAIN), {}),
    "rescheduled": ("due", move, of("a")),
    "replaced under its key": ("due", lambda store, _: schedule(store, "b"), of_other("b")),
    "replaced by its id": ("due", lambda store, _: schedule(store, "a"), of_other("a")),
    "superseded by the running task": (
        "leased",
        lambda store, _: schedule(store, "a", conflict="", kind="R", supersede=True),
        of_other("a"),
    ),
    "kept": ("due", lambda store, _: schedule(store, "b", conflict="keep"), of("a")),
    "dead and removed": ("dead", cancel(Outcome.DONE), {}),
    "dead and rescheduled": ("dead", move, of("a")),
    "dead and scheduled anew": (
        "dead",
        lambda store, _: schedule(store, "a", conflict="keep"),
        of_other("a"),
    ),
}


@pytest.mark.parametrize(("place", "step", "expected"), STEPS.values(), ids=STEPS)
def test_a_step_leaves_the_tags_of_what_waits_and_no_others(store, place, step, expected):
    claims = store.at(place, extras=TAGGED)
    step(store, claims)
    assert tags(store) == expected
    store.check()


def test_a_batch_that_is_handed_over_takes_all_its_tags_and_keys_along(store):
    for number in range(300):
        own = tuple(f"t{number + tag}" for tag in range(16))
        store.schedule(f"a{number}", extras=Extras(f"k{number}", own))

    assert store.steps(batch_size=300).hand_over().handed_over == 300
    assert tags(store) == {}
    assert not store.raw.exists(store.keys["holders"])
    store.check()


def test_tags_and_key_of_the_longest_survive_everything(store):
    longest = Extras("k" * 255, tuple(f"{number:x}" + "é" * 127 for number in range(16)), 10**15)

    store.at("uncertain", extras=longest)
    store.reschedule("a", When("at", FAR_MS))

    assert store.entries.find("a").extras == longest
    assert b"a" in store.entries.find("a").message
    store.check()
