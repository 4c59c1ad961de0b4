"""Stores for ``test_aborted`` in which the key of a task that runs is held, and another is behind.

Each function takes a prepared store; see ``tests/operations/table.py``.
"""

from celery_delayq.core.clock import When
from celery_delayq.core.store.record import HELD, Extras
from tests.store.support import FAR_MS, NOW_MS

HELD_TOO = Extras("held key", ("all",), hold="f1000")


def held(ready):
    """The key of a task that runs is held."""
    ready.store.schedule("held", extras=HELD_TOO)
    ready.steps.hand_over()
    ready.store.raw.delete("celery")


def second(ready):
    """Another task waits behind it, and all scanners sleep."""
    held(ready)
    go_behind("second")(ready)
    fall_asleep(ready)


def fall_asleep(ready):
    ready.store.raw.hset(ready.store.keys["meta"], "timer", f"{FAR_MS}:")


def go_behind(task_id, key="held key"):
    """Schedule a task that goes behind the holder of a key; or takes the key, if that is free."""

    def take(ready):
        extras = Extras(key, ("all",), FAR_MS, hold="w1000")
        ready.store.schedule(
            task_id, NOW_MS - 9, extras=extras, share=True, conflict="replace", revokes="all"
        )

    return take


def put_off(ready, due_ms):
    """The task that runs schedules itself again, and takes its key along."""
    holder = ready.store.raw.hget(ready.store.keys["holders"], "held key")
    delivery = holder.split(HELD)[1].decode()
    ready.store.schedule("held", due_ms, extras=Extras("held key", hold="f1000"), run=delivery)


def second_ended(ready):
    """The same, and the key is held no longer."""
    second(ready)
    ready.store.set_ms(NOW_MS + 4000)


def behind_one_that_waits(ready):
    """The task that runs has put itself off, and another one is behind it."""
    second(ready)
    put_off(ready, NOW_MS - 9)
    fall_asleep(ready)


def waits_again(ready):
    """The task that runs has put itself off; the end in time is over."""
    held(ready)
    put_off(ready, FAR_MS)
    ready.store.set_ms(NOW_MS + 4000)


def look_again(ready):
    behind_one_that_waits(ready)
    ready.store.reschedule("held", When("at", FAR_MS))
    ready.store.raw.zadd(ready.store.keys["held"], {"held key": 1})


def behind_one_that_is_skipped(ready):
    """It was scheduled anew, and is too late."""
    behind_one_that_waits(ready)
    extras = Extras("held key", (), 0)
    ready.store.schedule_relayed("held", NOW_MS - 99, extras=extras, conflict="replace")
    fall_asleep(ready)


def behind_one_that_holds_no_longer(ready):
    """It was scheduled anew, and holds its key only while it waits; it is being published."""
    behind_one_that_waits(ready)
    extras = Extras("held key")
    ready.store.schedule_relayed("held", NOW_MS - 99, extras=extras, conflict="replace")
    ready.store.held = ready.store.take("leased", "held", by=ready.steps)
    fall_asleep(ready)


def half_forward(ready):
    """One came forward, but Redis stopped that script half-way."""
    extras = Extras("held key", ("all",), 0)
    ready.store.schedule_relayed("held", NOW_MS - 99, extras=extras, share=True)
    ready.store.schedule("second", NOW_MS - 99, extras=Extras("other key"), share=True)
    raw, keys = ready.store.raw, ready.store.keys
    for name, key, task_id in (("relay", "held key", b"held"), ("due", "other key", b"second")):
        (member,) = [one for one in raw.zrange(keys[name], 0, -1) if one[6:] == task_id]
        raw.hset(keys["holders"], f"\xff{key}".encode("latin-1"), member)
        raw.zadd(keys["behind"], {member: NOW_MS})


def half_forward_and_claimed(ready):
    half_forward(ready)
    ready.store.set_ms(NOW_MS - 99)
    # It is in two places, which no builder takes an entry to.
    ready.store.held = ready.steps.claim(1).entries


def unnamed(ready):
    """A lost name of one that is behind another."""
    second(ready)
    raw, keys = ready.store.raw, ready.store.keys
    raw.hdel(keys["holders"], b"\xffheld key")
    raw.delete(keys["held"])


def two_behind(ready):
    """Two are behind one, as no script leaves it."""
    second(ready)
    raw, keys = ready.store.raw, ready.store.keys
    (member,) = raw.zrange(keys["behind"], 0, -1)
    raw.hset(keys["holders"], b"\xffheld key", member)
    extras = Extras("held key")
    ready.store.schedule("third", NOW_MS - 9, extras=extras, share=True, conflict="replace")
    names = {one: raw.hget(keys["holders"], one) for one in (b"held key", b"\xffheld key")}
    raw.hdel(keys["holders"], *names)
    ready.store.schedule("second", NOW_MS - 9, extras=extras, share=True)
    raw.hset(keys["holders"], mapping=names)
    (other,) = [one for one in raw.zrange(keys["due"], 0, -1) if one.endswith(b"second")]
    raw.zadd(keys["behind"], {other: NOW_MS})
    raw.zrem(keys["due"], other)
