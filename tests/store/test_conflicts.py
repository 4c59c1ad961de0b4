"""A new entry, if another one has its id or its key; and which entry has a key."""

from itertools import product

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store import Listing, NewEntry, Outcome
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.record import Extras, Template, header_for, labels_for
from celery_delayq.core.store.schedule import Addition
from celery_delayq.errors import AlreadyDead, AlreadyScheduled, InFlight
from tests.store.support import FAR_MS, LINES, NOW_MS, PLACES, ROUTE, WAITING, new_record
from tests.store.who_stays import DUE, POLICIES, outcome

pytestmark = pytest.mark.core


AS_STORED = ["", "keep", "replace", "earliest", "latest", "debounce"]
KEY = Extras("k")
DUE_MS = NOW_MS - 1000  # of the existing entry, which has to be due to get into most places


def expected(place, policy, shift, *, same_id):
    """The outcome for the new entry, as the user sees it."""
    if same_id and place == "leased":
        return {"": "refused", "keep": "kept", "earliest": "kept"}.get(policy, "busy")
    if same_id and policy == "":
        return "refused"
    in_the_way = place in WAITING or (same_id and place == "lapsed")
    if not in_the_way:
        return "written"
    if policy == "":
        return "refused"
    keeps = {"keep": True, "earliest": shift >= 0, "latest": shift <= 0}.get(policy, False)
    return "kept" if keeps else "replaced"


def became(store, answer, *, same_id):
    if isinstance(answer, InFlight):
        return "busy"
    if isinstance(answer, AlreadyScheduled):
        assert answer.holder == ("" if same_id else "old")
        return "refused"
    if answer.existed:
        assert (answer.task_id, answer.due_ms) == ("old", DUE_MS)
        assert answer.cancelled == ()
        return "kept"
    new_id = "old" if same_id else "new"
    assert answer.task_id == new_id
    assert store.places(new_id) == ["due"]
    assert b"the new one" in store.entries.find(new_id).message
    if same_id:
        assert answer.cancelled == ()
        return "either"
    return "replaced" if store.record("old") is None else "written"


@pytest.mark.parametrize("same_id", [False, True], ids=["same key", "same id"])
@pytest.mark.parametrize("place", PLACES)
def test_the_policy_decides_which_entry_stays(store, place, same_id):
    for policy, shift in product(AS_STORED, [-1, 0, 1]):
        store.raw.flushall()
        store.set_ms(NOW_MS)
        store.at(place, "old", due_ms=DUE_MS, extras=KEY)
        store.set_ms(NOW_MS + 1)
        before = store.record("old")

        task_id, extras = ("old", Extras()) if same_id else ("new", KEY)
        answer = schedule(store, task_id, DUE_MS + shift, policy, extras=extras, revokes="replaced")

        wanted = expected(place, policy, shift, same_id=same_id)
        got = became(store, answer, same_id=same_id)
        assert got == wanted or (got == "either" and wanted in ("written", "replaced")), (
            policy,
            shift,
        )
        is_dead_letter = same_id and place == "dead" and wanted == "refused"
        assert isinstance(answer, AlreadyDead) == is_dead_letter
        if wanted in ("refused", "kept", "busy"):
            assert store.record("old") == before
            assert store.record("new") is None or same_id
        store.check()


def new(task_id, conflict, due_ms=FAR_MS, *, kind="L", extras=KEY):
    destination = header_for(kind, "celery" if kind == "L" else ROUTE)
    record = new_record(task_id, destination, "the new one", share=True)
    return NewEntry(task_id, When("at", due_ms), record.with_extras(extras), conflict)


def schedule(store, task_id, due_ms=FAR_MS, conflict="replace", *, extras=KEY, **options):
    (answer,) = store.entries.schedule(
        [new(task_id, conflict, due_ms, extras=extras)], Addition(**options)
    )
    return answer


# Policy, for which a state is to be stored, whether messages are; then the id that gives way,
# whether its state is owed, and whether its message is returned.
GIVES_WAY = [
    ("replace", "replaced", True, "a", True, True),
    ("replace", "all", False, "a", True, True),
    ("replace", "none", False, "a", False, False),
    ("keep", "all", True, "b", True, True),
    ("keep", "replaced", True, None, False, False),
    ("keep", "none", True, None, False, False),
    ("keep", "none", False, None, False, False),
]


@pytest.mark.parametrize("row", GIVES_WAY, ids=lambda row: " ".join(map(str, row[:3])))
def test_a_state_is_owed_for_an_entry_that_gives_way_if_its_id_was_given_out(store, row):
    policy, revokes, tells, gone, owed, has_message = row
    store.schedule("a", FAR_MS, payload="of a", extras=KEY, share=True)

    answer = schedule(store, "b", conflict=policy, revokes=revokes, tells=tells)

    why = "replaced by b" if policy == "replace" else "kept a"
    assert answer.existed is (policy == "keep")
    assert [(one.task_id, one.reason) for one in answer.cancelled] == [(gone, why)] * bool(gone)
    text = {"a": b"of a", "b": b"the new one"}
    assert [text[gone] in one.message for one in answer.cancelled] == [has_message] * bool(gone)
    assert store.entries.cancelled_ms_ago("a") == (0 if policy == "replace" else None)
    store.set_ms(NOW_MS + 600_000)
    told = [(one.task_id, one.reason) for one in store.steps(owes=True).owed()]
    assert told == [(gone, why)] * owed


def test_a_state_is_owed_no_longer_once_its_id_is_scheduled(store):
    schedule(store, "a")
    schedule(store, "b", conflict="keep", revokes="all")
    schedule(store, "b", extras=Extras())
    assert not store.raw.exists(store.keys["outbox"], store.keys["outbox_messages"])


def test_debounce_takes_over_the_time_of_scheduling_and_ends_at_max_wait(store):
    schedule(store, "a", NOW_MS + 500, "debounce 1000")
    store.set_ms(NOW_MS + 400)
    put_off = schedule(store, "b", NOW_MS + 900, "debounce 1000")
    store.set_ms(NOW_MS + 800)
    ended = schedule(store, "c", NOW_MS + 1300, "debounce 1000")

    assert put_off.due_ms == NOW_MS + 900
    assert ended.due_ms == NOW_MS + 1000
    assert store.entries.find("c").created_ms == NOW_MS
    store.check()


@pytest.mark.parametrize(
    ("us", "passed_us", "max_wait"),
    [(0, 5_000_000, 1000), (100, 1_100, 1)],
    ids=["long ago", "just now"],
)
def test_max_wait_that_has_passed_is_due_at_once(store, us, passed_us, max_wait):
    store.set_us(NOW_MS * 1000 + us)
    schedule(store, "a", FAR_MS)
    store.set_us(NOW_MS * 1000 + us + passed_us)

    answer = schedule(store, "b", FAR_MS, f"debounce {max_wait}")

    assert answer.due_ms == NOW_MS + max_wait
    assert store.steps().hand_over().handed_over == 1


def test_a_dead_letter_with_the_id_does_not_count_for_max_wait(store):
    store.at("dead", "old", due_ms=DUE_MS, extras=KEY)
    store.set_ms(NOW_MS + 5000)
    assert schedule(store, "old", FAR_MS, "debounce 1000").due_ms == NOW_MS + 6000


def test_max_wait_does_not_put_the_first_of_a_row_before_its_own_time(store):
    assert schedule(store, "a", FAR_MS, "debounce 1000").due_ms == FAR_MS


def test_another_policy_begins_a_row_anew(store):
    schedule(store, "a", conflict="debounce 1000")
    store.set_ms(NOW_MS + 500)
    schedule(store, "b", conflict="replace")
    assert store.entries.find("b").created_ms == NOW_MS + 500


def test_both_are_replaced_that_are_in_the_way(store):
    store.schedule("a", FAR_MS, extras=Extras("other", ("t",)), share=True)
    schedule(store, "b")

    answer = schedule(store, "a", revokes="replaced")

    assert [one.task_id for one in answer.cancelled] == ["b"]
    assert store.raw.hgetall(store.keys["holders"]) == {b"k": b"a"}
    assert not store.raw.exists(store.keys["tags"])
    store.check()


def unknown(store):
    store.at("uncertain", "old", due_ms=DUE_MS, extras=KEY)


def unknown_and_dead(store):
    unknown(store)
    store.take("dead", "old")


def lapsed(store):
    store.at("lapsed", "old", due_ms=DUE_MS, extras=KEY)


uncertain = pytest.mark.parametrize("put", [unknown, lapsed, unknown_and_dead])
replacing = pytest.mark.parametrize("policy", ["replace", "debounce", "latest"])


@uncertain
@replacing
@pytest.mark.parametrize("kind", ["L", "R"])
@pytest.mark.parametrize("move", [False, True], ids=["", "moved"])
def test_an_entry_that_takes_the_id_of_an_uncertain_one_is_uncertain(
    store, put, policy, kind, move
):
    """A copy of the earlier one may be in a queue, and so may still run."""
    put(store)
    store.entries.schedule([new("old", policy, kind=kind)])
    store.check()
    if move:
        assert store.reschedule("old", When("by", 5))[0] is Outcome.UNCERTAIN

    outcome, _ = store.entries.change("old", Removal())

    assert outcome is Outcome.UNCERTAIN
    assert store.entries.cancelled_ms_ago("old") is None
    assert not store.raw.exists(store.keys["claims"])
    store.check()


@uncertain
def test_an_entry_that_the_next_one_of_its_call_replaces_is_returned_as_uncertain(store, put):
    put(store)
    _, answer = store.entries.schedule([new("old", "replace", kind="R"), new("b", "replace")])
    assert [(one.task_id, one.outcome) for one in answer.cancelled] == [("old", Outcome.UNCERTAIN)]
    assert not store.raw.exists(store.keys["claims"])


def test_an_entry_that_gives_way_after_its_id_was_replaced_is_uncertain(store):
    unknown(store)
    _, answer = store.entries.schedule(
        [new("b", "replace"), new("old", "keep")], Addition(revokes="all")
    )
    assert (answer.task_id, answer.existed) == ("b", True)
    assert [(one.task_id, one.outcome) for one in answer.cancelled] == [("old", Outcome.UNCERTAIN)]


@uncertain
def test_an_entry_that_takes_the_id_of_an_uncertain_one_is_marked_and_has_its_own_attempt(
    store, put
):
    put(store)
    store.entries.schedule([new("old", "replace", NOW_MS, kind="R")])

    [entry] = store.take("leased", "old")

    assert b"the new one" in entry.message
    assert entry.uncertain
    assert not entry.is_first
    assert not entry.refusals


@uncertain
def test_a_direct_entry_that_takes_the_id_of_an_uncertain_one_leaves_nothing_behind(store, put):
    put(store)
    store.entries.schedule([new("old", "replace", NOW_MS)])
    assert store.steps().hand_over().handed_over == 1
    assert not store.raw.exists(store.keys["claims"], store.keys["records"])


@uncertain
def test_an_entry_too_late_to_leave_under_an_uncertain_id_is_owed_as_uncertain(store, put):
    put(store)
    store.entries.schedule([new("old", "replace", NOW_MS, extras=Extras(grace_ms=0))])
    store.set_ms(NOW_MS + 60_000)
    shard_steps = store.steps(owes=True)

    assert [one for one, _ in shard_steps.hand_over().skipped] == ["old"]

    store.set_ms(NOW_MS + 600_000)
    assert [one.outcome for one in shard_steps.owed()] == [Outcome.UNCERTAIN]


def test_an_item_that_replaces_an_entry_leaves_the_template_that_the_next_one_shares(store):
    """A template goes with its last user, even if another item of the same call shares it."""
    store.schedule("holder", FAR_MS, extras=KEY, share=True)
    other = [LINES[0].replace("{", '{"of another": 1, '), *LINES[1:]]

    answers = store.entries.schedule(
        [
            NewEntry("a", When("at", FAR_MS), of_template(other).with_extras(KEY), "replace"),
            NewEntry("b", When("at", FAR_MS), of_template(LINES)),
        ]
    )

    assert [answer.task_id for answer in answers] == ["a", "b"]
    assert b"tests.remind" in store.entries.find("b").message
    store.check()


def of_template(lines):
    differing = ["", "null", "null", '"()"', '"{}"', '"x"']
    labels = labels_for("tests.remind", "celery")
    return Template.of(lines).new_record(header_for("L", "celery"), labels, differing)


@pytest.mark.parametrize("task_id", ["a:b", "a b", "a%3Ab", "ü\n", "k", "-1"])
def test_ids_of_any_text_are_told_as_they_are(store, task_id):
    schedule(store, task_id)
    kept = schedule(store, "new", conflict="keep", revokes="all")
    refused_one = schedule(store, "other", conflict="")
    replaced = schedule(store, "last", conflict="replace", revokes="replaced")

    assert kept.task_id == task_id
    assert kept.cancelled[0].reason == f"kept {task_id}"
    assert refused_one.holder == task_id
    assert replaced.cancelled[0].task_id == task_id


def test_more_than_fits_one_step_is_asked_for_again(store, limits):
    limits(schedule_bytes=1000)
    for number in range(10):
        store.schedule(f"old {number}", FAR_MS, payload="x" * 400, extras=Extras(f"k{number}"))
    entries = [new(f"new {one}", "replace", extras=Extras(f"k{one}")) for one in range(10)]

    operations = len(store.known_calls()[0])
    answers = store.entries.schedule(entries, Addition(revokes="replaced"))

    assert len(store.known_calls()[0]) - operations > 2
    assert [answer.cancelled[0].task_id for answer in answers] == [
        f"old {number}" for number in range(10)
    ]
    assert store.raw.hlen(store.keys["records"]) == 10
    store.check()


# A new entry meets others: the decisions that the documentation's table leaves out.


@pytest.mark.parametrize("policy", POLICIES)
def test_the_entry_with_its_id_decides_before_the_one_with_its_key(policy):
    for state in ("unreadable", "leased"):
        alone = outcome(policy, DUE, own=state)
        for holder in ("waiting", "busy"):
            assert outcome(policy, DUE, own=state, holder=holder) == alone


@pytest.mark.parametrize("policy", POLICIES)
def test_a_dead_letter_with_its_id_stays_out_of_the_decision_under_its_key(policy):
    beside = outcome(policy, DUE, own="dead", holder="waiting")
    alone = outcome(policy, DUE, holder="waiting")
    assert beside == (("dead", None) if policy == "reject" else alone)


@pytest.mark.parametrize("policy", ["replace", "debounce", "earliest", "latest"])
def test_a_new_entry_meets_the_one_behind_a_waiting_holder_instead_of_the_holder(policy):
    assert outcome(policy, DUE - 1, holder="waiting", behind="waiting") == outcome(
        policy, DUE - 1, holder="busy", behind="waiting"
    )


def test_of_two_that_it_meets_the_one_with_its_key_is_told():
    assert outcome("keep", DUE, own="waiting", holder="waiting") == ("kept", "holder")


# A key belongs to the entry that waits under it; one that comes back takes it if it is free.


@pytest.fixture
def claimed(store, shard_steps):
    """An entry with the key that is being published."""
    return store.at("leased", by=shard_steps, extras=KEY)


def row_of_key(store):
    return store.raw.hget(store.keys["holders"], "k")


def schedule_next(store, due_ms=FAR_MS):
    store.schedule_relayed("next", due_ms, extras=KEY)


@pytest.mark.parametrize("keys", [("k", "K"), ("k", "k "), ("\u00e9", "e\u0301")])
def test_keys_are_told_apart_by_their_bytes(store, keys):
    for number, key in enumerate(keys):
        store.schedule(f"a{number}", FAR_MS, extras=Extras(key))
    store.check()


BACK = {
    "unsent": lambda _, steps, claimed: steps.nack("unsent", claimed),
    "unknown": lambda _, steps, claimed: steps.nack("unknown", claimed),
    "refused": lambda _, steps, claimed: steps.nack("refused", claimed, wait=1),
    "reclaimed": lambda _, steps, __: steps.reclaim(),
    "retried": lambda store, *_: store.reschedule("a", When("at", FAR_MS)),
}
# The fate of the next entry with its key.
NEXT = {
    "waits": lambda _: None,
    "is cancelled": lambda store: store.entries.change("next", Removal()),
    "is being published": lambda store: store.take("leased", "next"),
    "is dead": lambda store: store.take("dead", "next"),
    "is lost": lambda store: store.raw.hdel(store.keys["records"], "next"),
}


@pytest.mark.parametrize("became", [None, *NEXT])
@pytest.mark.parametrize("back", BACK)
def test_an_entry_that_comes_back_has_its_key_again_unless_another_waits_under_it(
    store, shard_steps, claimed, back, became
):
    if back == "retried":
        shard_steps.nack("dead", claimed, reason="NO_ROUTE")
    store.lease_out()
    if became:
        schedule_next(store, NOW_MS if "is" in became else FAR_MS)
        NEXT[became](store)
    store.set_ms(NOW_MS + 1)

    BACK[back](store, shard_steps, claimed)

    assert "a" in {entry.task_id for entry in store.entries.waiting(Listing(0, FAR_MS + 1))}
    assert row_of_key(store) == (b"next" if became == "waits" else b"a")
    with pytest.raises(AlreadyScheduled):
        store.schedule("third", extras=KEY)
    if became != "is lost":
        store.check()


@pytest.mark.parametrize("end", ["ack", "cancel"])
def test_an_entry_that_leaves_takes_no_other_entry_s_key_along(store, shard_steps, claimed, end):
    schedule_next(store)

    if end == "ack":
        shard_steps.ack(claimed)
    else:
        shard_steps.nack("unknown", claimed)
        assert store.entries.change("a", Removal())[0] is Outcome.UNCERTAIN

    assert row_of_key(store) == b"next"
    store.check()


@pytest.mark.parametrize(
    ("extras", "keeps"), [(Extras(), False), (Extras("other"), False), (KEY, True)]
)
@pytest.mark.parametrize("hold", ["", "f60000"])
def test_an_id_that_is_scheduled_anew_keeps_its_key_only_if_it_is_the_same(
    store, extras, keeps, hold
):
    store.schedule("a", FAR_MS, extras=Extras("k", hold=hold))
    store.schedule("a", FAR_MS, extras=extras, conflict="replace")
    assert row_of_key(store) == (b"a" if keeps else None)
    store.check()
