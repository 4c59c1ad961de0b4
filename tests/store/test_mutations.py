"""A fault changes the store's contents: each kind of key, in many ways, seeded.

After each change every operation runs: reads, changes, passes of a scanner. They may raise only
this package's errors, every loop ends, and no entry outside the change is lost, hidden, or
delivered twice. ``DELAYQ_MUTATIONS=100`` tries more than each run of the suite.
"""

import itertools
import json
import os
import random
from collections import Counter
from contextlib import suppress

import pytest

from celery_delayq.contrib.care.check import check_store
from celery_delayq.core.clock import MAX_DUE_MS, When
from celery_delayq.core.hooks import part_of
from celery_delayq.core.store import Entries, Filter, Listing, State, selection
from celery_delayq.core.store.changes import Removal
from celery_delayq.core.store.keys import KEYS, target_of_key
from celery_delayq.core.store.record import Extras, lane_for
from celery_delayq.errors import DelayQError
from tests.operations.table import revision_of, rule_row
from tests.store.arguments import arguments
from tests.store.support import CLOCK, FAR_MS, LANE, NOW_MS, TIMEOUT_MS

COUNT = int(os.environ.get("DELAYQ_MUTATIONS", "1"))  # of each kind, in each key

# No change turns one of these ids into another.
DIRECT = ["aardvark", "butterfly"]
DIRECT_SHARED = ["crocodile", "dragonfly"]
RELAYED = ["elephant", "flamingo"]
RELAYED_SHARED = ["grasshopper", "hedgehog"]
REFUSED = ["iguana", "jellyfish"]  # refused by its list; by the broker
PARKED = ["kangaroo", "lobster"]  # paused; coming back
KEYED = ["mongoose", "nightingale"]
BEHIND = "octopus"  # the task that runs holds its key
SHARED = {*DIRECT_SHARED, *RELAYED_SHARED}
GOOD = {*DIRECT, *RELAYED, *SHARED, *REFUSED, *PARKED, *KEYED, BEHIND}
PAUSED, BACK = lane_for(queue="paused"), lane_for(queue="back")

CHANGED = [name for name, says in KEYS.items() if not says.startswith("CHANNEL")]
HUGE = [b"9" * 400, b"-" + b"9" * 400, b"x" * 100_000, b"nan", b"1e308", b"-1", b"", b"\xff" * 40]
SCORES = ["inf", "-inf", 0.5, -1, 2**53, 1e300, NOW_MS + 0.25]


def extras(task_id):
    return Extras(f"key of {task_id}", ("all", task_id), grace_ms=3_600_000)


def refuse(store, shard_steps):
    """Let entries be refused, whose retry is due by now."""
    store.set_ms(NOW_MS - 3000)
    by_list, by_broker = REFUSED
    store.raw.set("celery", "no list")
    store.schedule(by_list, NOW_MS - 3000, extras=extras(by_list))
    shard_steps.hand_over()
    store.raw.delete("celery")
    asked = {"due_ms": NOW_MS - 3000, "share": False, "extras": extras(by_broker)}
    store.at("refused", by_broker, by=shard_steps, wait=1, **asked)
    store.set_ms(NOW_MS)


def park(store, shard_steps):
    """Let one entry be parked, and another one be about to come back."""
    for task_id, lane, queue in zip(PARKED, (PAUSED, BACK), ("paused", "back"), strict=True):
        store.entries.pause(lane, queue)
        store.schedule(task_id, NOW_MS - 3000, extras=extras(task_id), queue=queue)
    store.set_ms(NOW_MS - 2500)  # before the retry of the refused ones
    shard_steps.hand_over()
    store.entries.resume(BACK, 100)
    store.set_ms(NOW_MS)


def furnish(store):
    """Fill each key: entries that wait, are due, refused, parked, leased, dead, and gone."""
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    store.entries = Entries([store.scripts_with(history=20)], store.membership)
    store.entries.join()
    shard_steps = store.steps()
    store.at("dead", "dead", due_ms=NOW_MS - 9, by=shard_steps)
    store.schedule("gone", NOW_MS - 9, extras=Extras("held", hold="f100000"))
    store.schedule_relayed("leased", NOW_MS - 9, share=True)
    shard_steps.hand_over()
    store.take("leased", "leased", by=shard_steps)
    store.schedule(BEHIND, NOW_MS - 9, extras=Extras("held"), conflict="replace")
    _, _, store.delivery_of_gone = store.raw.hget(store.keys["holders"], "held").partition(b"\xff")
    store.raw.delete("celery")
    refuse(store, shard_steps)
    park(store, shard_steps)
    for ids, schedule in (
        (DIRECT + DIRECT_SHARED, store.schedule),
        (RELAYED + RELAYED_SHARED, store.schedule_relayed),
    ):
        for number, task_id in enumerate(ids):
            schedule(task_id, NOW_MS - 2 + number % 2, share=task_id in SHARED)
    direct, relayed = KEYED
    store.schedule(direct, NOW_MS - 1, extras=extras(direct))
    store.schedule_relayed(relayed, NOW_MS - 1, extras=extras(relayed))
    store.schedule("keyed", FAR_MS, extras=extras("keyed"))
    store.schedule("far", FAR_MS, share=True)
    store.schedule("farther", FAR_MS + 1)
    store.raw.hset(store.keys["tombstones_old"], "older", "h" + "0" * 60)
    store.entries.change("nobody", Removal())
    store.raw.hset(store.keys["calls_old"], mapping=store.raw.hgetall(store.keys["calls"]))
    store.schedule("revoked", FAR_MS)
    store.entries.change("revoked", Removal("caller"))
    given = rule_row("rule")
    store.shard.calls.call("rule", **arguments("rule", called="rule", what="put", given=given))
    named = arguments("rules_named", process="p", digest="d", names="n", unknown="u", full=1)
    store.scripts.call("rules_named", **named)
    store.entries.note_reconciled("tag", "found", 1)
    told = {"called": "rule", "revision": revision_of(store), "look": FAR_MS, "trouble": "bad"}
    store.shard.calls.call("fire", **arguments("fire", **told))
    store.schedule("undone", FAR_MS)
    with part_of("bulk"):
        store.entries.change("undone", Removal(undo=(60, 10)))
    for name in ("undo", "undo_bulks"):
        store.raw.hset(store.keys[f"{name}_old"], mapping=store.raw.hgetall(store.keys[name]))
    store.raw.hset(store.keys["meta"], "timer", f"{NOW_MS}:somebody")
    store.raw.hset(store.keys["arrived_old"], b"m" * 16, 1)
    store.arrive("leased", 1)
    store.schedule("taken", FAR_MS, delivery=store.delivery("taken"))
    store.raw.hset(store.keys["meta"], "schema", "1")
    return shard_steps


def flipped(chance, text):
    if not text:
        return b"\x00"
    at, bit = chance.randrange(len(text)), 1 << chance.randrange(8)
    return text[:at] + bytes([text[at] ^ bit]) + text[at + 1 :]


def cut(chance, text):
    return text[: chance.randrange(len(text) + 1)]


def longer(chance, text):
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.randbytes(chance.randrange(1, 20)) + text[at:]


def huge(chance, _text):
    return chance.choice(HUGE)


def change_part(chance, raw, key, change):
    """Change one value, field, member or score of a key; returns its id or name."""
    kind = raw.type(key)
    if kind == b"string":
        raw.set(key, change(chance, raw.get(key)))
        return b""
    if kind == b"list":
        raw.lset(key, 0, change(chance, raw.lindex(key, 0)))
        return b""
    if kind == b"hash":
        field = chance.choice(sorted(raw.hkeys(key)))
        value = raw.hget(key, field)
        if chance.random() < 0.25:
            raw.hdel(key, field)
            raw.hset(key, change(chance, field), value)
        else:
            raw.hset(key, field, change(chance, value))
        return field
    member, score = chance.choice(raw.zrange(key, 0, -1, withscores=True))
    raw.zrem(key, member)
    if chance.random() < 0.5:
        raw.zadd(key, {member: chance.choice(SCORES)})
    else:
        raw.zadd(key, {change(chance, member): score})
    return member[LANE + 6 :] if key.endswith(b":parked") else member[6:]


PARTS = {"a bit": flipped, "cut": cut, "longer": longer, "huge": huge}


def concerned(name, part):
    """The good entries that a change of a part, or of all (``None``), may cost."""
    if name in ("templates", "template_uses"):
        return SHARED
    if name == "parked":
        # A changed score makes Redis miss other members in byte order.
        return {*PARKED}
    if name in ("behind", "holders", "held"):
        return {BEHIND}
    if name in ("records", "due", "relay", "refused"):
        return GOOD if part is None else {part.decode(errors="replace")}
    return set()


def attempt(step, *arguments, **options):
    """Run a step that may fail, but only with one of this package's errors."""
    with suppress(DelayQError):
        return step(*arguments, **options)


def select(store, chosen):
    for members in store.pages(chosen):
        yield from selection.read(store.shard, chosen, members)


def read(store):
    for task_id in (*GOOD, "far", "dead", "leased", "gone", "older", "nobody"):
        attempt(store.entries.find, task_id)
        attempt(store.entries.handed_over_ms, task_id)
        attempt(store.entries.find, target_of_key(f"key of {task_id}"))
    attempt(store.entries.counts)
    attempt(store.entries.pauses)
    attempt(store.entries.history, 100, 100, 100)
    attempt(store.entries.undoable, "bulk")
    attempt(lambda: [*check_store(store.entries)])
    for chosen in (Filter(), Filter(tags=("all",)), *(Filter(states=(state,)) for state in State)):
        attempt(lambda chosen=chosen: [*select(store, chosen)])
    return attempt(
        lambda: [*itertools.islice(store.entries.waiting(Listing(0, MAX_DUE_MS + 1)), 1000)]
    )


def change(store):
    attempt(store.schedule, "new", FAR_MS, share=True)
    attempt(store.reschedule, "far", When("by", 1000))
    attempt(store.reschedule, "dead", When("at", FAR_MS))
    for who in ("farther", "dead"):
        attempt(store.entries.change, who, Removal())
    attempt(store.schedule, "other", FAR_MS, extras=extras("keyed"), conflict="replace")
    attempt(store.entries.change, target_of_key("key of keyed"), Removal())
    attempt(store.schedule, "next", FAR_MS, extras=Extras("held"))
    for delivery in ("delivery", store.delivery_of_gone):
        attempt(store.scripts.call, "hold", words=["gone", "held", delivery, 0, 0])
    attempt(store.arrive, "leased", 2)
    for again in (True, False):
        for task_id in ("taken", "new taken"):
            delivery = store.delivery(task_id, again=again)
            attempt(store.schedule, task_id, FAR_MS, delivery=delivery)
    attempt(store.arrive, "new", 1)
    for lane in (PAUSED, BACK):
        attempt(store.entries.resume, lane)


def relay(shard_steps, published):
    """Claim, publish and ack due entries; an entry without a complete message is dead."""
    claimed, *_ = shard_steps.claim(100)
    for entry in claimed:
        try:
            published.append(json.loads(entry.message)["headers"]["id"])
        except ValueError:
            shard_steps.nack("dead", [entry], reason="cannot be read")
    shard_steps.ack(claimed)


def scan(shard_steps, published):
    for _ in range(3):
        attempt(shard_steps.hand_over)
        attempt(shard_steps.reclaim)
        attempt(relay, shard_steps, published)


def arrived(store):
    found = Counter()
    for raw in store.raw.lrange("celery", 0, -1):
        with suppress(ValueError, KeyError, TypeError):  # of the changed entry
            found[json.loads(raw)["headers"]["id"]] += 1
    return found


def has_a_place(store, task_id):
    """Whether an existing entry has a record and a place, so that it can leave later."""
    return store.record(task_id) is not None and store.places(task_id) != []


@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("name", CHANGED)
def test_a_change_of_a_part_costs_no_other_entry(store, name, kind):
    for number in range(COUNT):
        chance = random.Random(f"{name} {kind} {number}")
        shard_steps, published = furnish(store), []
        part = change_part(chance, store.raw, store.keys[name].encode(), PARTS[kind])
        good = GOOD - concerned(name, part)

        listed = read(store)
        change(store)
        scan(shard_steps, published)

        assert good <= {entry.task_id for entry in listed}, f"hidden, number {number}"
        found = arrived(store) + Counter(published)
        held = {task_id for task_id in PARKED if has_a_place(store, task_id)}  # resume was refused
        assert {found[task_id] for task_id in good - held} <= {1}, (number, good, found)
        assert max(found.values()) == 1
        assert not held & set(found)


@pytest.mark.parametrize("name", CHANGED)
def test_a_key_that_is_gone_costs_no_entry_that_was_not_in_it(store, name):
    for number in range(COUNT):
        shard_steps, published = furnish(store), []
        store.raw.delete(store.keys[name])
        good = GOOD - concerned(name, None)

        read(store)
        change(store)
        scan(shard_steps, published)

        found = arrived(store) + Counter(published)
        assert max(found.values(), default=0) <= 1
        scan(shard_steps, published)
        found = arrived(store) + Counter(published)
        assert {found[task_id] for task_id in good} <= {1}, (number, good, found)


def test_each_key_has_something_to_be_changed(store):
    furnish(store)

    assert {name for name in KEYS if store.raw.exists(store.keys[name])} == {*CHANGED}
    assert store.raw.exists(CLOCK)


@pytest.mark.parametrize("timeout", [b"9" * 400, b"nan", b"-1", b"60001", b""])
def test_a_time_out_that_no_process_can_have_counts_as_none(store, timeout):
    shard_steps = furnish(store)
    store.raw.hset(store.keys["meta"], "timeout", timeout)

    assert shard_steps.hand_over().handed_over > 0
    assert store.schedule("new", FAR_MS)
    assert store.raw.hget(store.keys["meta"], "timeout") == str(TIMEOUT_MS).encode()
