"""What the store does with calls under one unique key, and with what holds it: on paper.

`Keyed` is `Ordered` for several ids that share a key. A schedule says what is to be done about what
is in the way, which is an entry of its id, and what waits under the key. A cancel or a reschedule
names the key, or an id. The field of the key names the entry that took it last; it stays there
while that is leased or dead, and counts only while it waits.

The others are protocols that look right and are not; `test_keys.py` finds them out.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.protocol.calls import NEVER, NOW, TIMEOUT, Answer, Ordered, Request
from tests.protocol.model import LEASED, WAITING

DEAD = "dead"
POLICIES = ("reject", "keep", "replace")  # the others are one of these, by due time
PLAIN = "plain"  # a replace without a key
KEPT, CONFLICT = "kept", "conflict"
KEY = -1  # as a subject, beside ids


class Call(NamedTuple):
    """What a call is about."""

    verb: str  # one of POLICIES, or plain, or cancel, or move
    id: int | None  # that it names; None: it names the key

    @property
    def schedules(self) -> bool:
        return self.verb in {*POLICIES, PLAIN}

    @property
    def by_key(self) -> bool:
        return self.id is None or self.verb in POLICIES


class Item(NamedTuple):
    """An entry."""

    owner: int  # the call that scheduled it
    keyed: bool = True
    place: str = WAITING
    changed: int = NOW
    back: bool = False  # it came back while another one waited under the key


class Store(NamedTuple):
    """What the store knows of the ids and of their key."""

    items: tuple[Item | None, ...]  # by id
    fences: tuple[int, ...]  # by id
    holder: int | None = None  # the id that the key's field names
    key_fence: int = NEVER
    answers: tuple[Answer, ...] = ()

    def with_item(self, id_: int, item: Item | None) -> "Store":
        return self._replace(items=(*self.items[:id_], item, *self.items[id_ + 1 :]))

    def with_fence(self, id_: int, since: int) -> "Store":
        return self._replace(fences=(*self.fences[:id_], since, *self.fences[id_ + 1 :]))

    def waits(self, id_: int | None) -> bool:
        return id_ is not None and bool(self.items[id_]) and self.items[id_].place == WAITING


def call_of(request: Request) -> Call:
    """``keep`` schedules under an id of its own, ``keep 0`` under that of call 0."""
    verb, _, named = request.kind.partition(" ")
    if named:
        return Call(verb, int(named))
    return Call(verb, request.call if verb in {*POLICIES, PLAIN} else None)


class Keyed(Ordered):
    """Order by key and by id.

    A call that names the key, and each schedule, is stale if it was issued before the last change
    of what the field names, wherever that is, or before the key's fence: what comes back may take
    the key long after its own last change, so neither of the two is always the later one.
    """

    def is_stale(self, store: Store, request: Request) -> bool:
        return any(request.issued <= since <= NOW for since in self.since(store, call_of(request)))

    def since(self, store: Store, call: Call) -> Iterator[int]:
        if call.id is not None:
            yield store.fences[call.id]
            yield from self.changed(store, call.id)
        if call.by_key:
            yield store.key_fence
            if store.holder is not None:
                yield from self.changed(store, store.holder)

    def changed(self, store: Store, id_: int) -> Iterator[int]:
        if store.items[id_]:
            yield store.items[id_].changed

    def change(self, store: Store, request: Request) -> tuple[Store, str]:
        call = call_of(request)
        if call.schedules:
            return self.schedule_as(store, request, call)
        id_ = store.holder if call.id is None else call.id
        item = None if id_ is None else store.items[id_]
        if not item:
            return self.found_none(store, call), "not_found"
        if item.place == LEASED:
            return store, "in_flight"
        if call.verb == "cancel":
            return self.remove(store, id_, call), "done"
        moved = store.with_item(id_, item._replace(place=WAITING, changed=NOW))
        return self.take(moved, id_), "done"

    def found_none(self, store: Store, call: Call) -> Store:
        if call.id is None:
            return store._replace(key_fence=NOW)
        return store.with_fence(call.id, NOW)

    def remove(self, store: Store, id_: int, _call: Call) -> Store:
        """Cancelled: what was asked for it, or for its key, before now comes too late."""
        fenced = self.fence_key(store, NOW) if store.holder == id_ else store
        return self.depart(fenced, id_).with_fence(id_, NOW)

    def schedule_as(self, store: Store, request: Request, call: Call) -> tuple[Store, str]:
        own, taken = store.items[call.id], call.by_key and store.waits(store.holder)
        if call.verb == "reject" and (own or taken):
            return store, CONFLICT
        if call.verb == "keep" and (taken or (own and own.place != DEAD)):
            return self.keep(store), KEPT
        if own and own.place == LEASED:
            return store, "in_flight"
        if taken:
            store = self.replaced(store, store.holder)
        if store.items[call.id]:
            store = self.depart(store, call.id)
        written = store.with_item(call.id, Item(request.call, call.by_key))
        return written._replace(holder=call.id) if call.by_key else written, "held"

    def keep(self, store: Store) -> Store:
        return self.fence_key(store, NOW)

    def replaced(self, store: Store, id_: int) -> Store:
        return self.depart(store, id_).with_fence(id_, NOW)

    def fence_key(self, store: Store, since: int) -> Store:
        """A fence is never lowered: what leaves may be older than what was done under its key."""
        return store._replace(key_fence=max(store.key_fence, since))

    def depart(self, store: Store, id_: int) -> Store:
        store = store.with_item(id_, None)
        return store._replace(holder=None) if store.holder == id_ else store

    def hand_over(self, store: Store, id_: int) -> Store:
        """Directly, or confirmed; what is young leaves its last change as a fence."""
        changed = store.items[id_].changed
        if changed >= NOW - TIMEOUT:
            store = store.with_fence(id_, changed)
            store = self.fence_young(store, id_, changed) if store.items[id_].keyed else store
        return self.depart(store, id_)

    def fence_young(self, store: Store, _id: int, changed: int) -> Store:
        return self.fence_key(store, changed)

    def claim(self, store: Store, id_: int) -> Store:
        return store.with_item(id_, store.items[id_]._replace(place=LEASED))

    def bury(self, store: Store, id_: int) -> Store:
        return store.with_item(id_, store.items[id_]._replace(place=DEAD))

    def come_back(self, store: Store, id_: int) -> Store:
        """Given back, or taken back."""
        return self.take(store.with_item(id_, store.items[id_]._replace(place=WAITING)), id_)

    def take(self, store: Store, id_: int) -> Store:
        """The key, if it has one, and nothing waits under it."""
        free = store.items[id_].keyed and not store.waits(store.holder)
        return store._replace(holder=id_) if free else store

    def forget(self, store: Store) -> Store:
        return store

    def later(self, store: Store, oldest: int, running: set[int]) -> Store:
        def kept(since: int) -> int:
            return since - 1 if since - 1 >= max(oldest, NOW - TIMEOUT) else NEVER

        def aged(item: Item) -> Item:
            changed = item.changed - 1
            return item._replace(changed=changed if changed >= oldest else NEVER)

        return Store(
            tuple(item and aged(item) for item in store.items),
            tuple(map(kept, store.fences)),
            store.holder,
            kept(store.key_fence),
            tuple(
                each._replace(stored=each.stored - 1)
                for each in store.answers
                if each.stored - 1 >= NOW - TIMEOUT and each.call in running
            ),
        )


class NeverLooksAtTheEntry(Keyed):
    """What stands under the id of a schedule is put in order by its fence alone."""

    def changed(self, store, id_):
        return () if id_ != store.holder else super().changed(store, id_)


class LooksOnlyAtWhatWaits(Keyed):
    """What is leased or dead does not hold the key, so nobody asks when it was changed."""

    def since(self, store, call):
        return super().since(
            store if store.waits(store.holder) else store._replace(holder=None), call
        )


class FenceOrHolder(Keyed):
    """The key's fence counts where nothing holds it."""

    def since(self, store, call):
        held = store.holder is not None
        return super().since(store._replace(key_fence=NEVER) if held else store, call)


class NeverLooksAtTheHolder(Keyed):
    """The key's fence alone, and what stands under the id."""

    def since(self, store, call):
        return super().since(store._replace(holder=None), call)


class NeverLooksAtTheKey(Keyed):
    """A schedule is put in order by its id alone, as one without a key."""

    def since(self, store, call):
        if call.schedules:
            yield store.fences[call.id]
        else:
            yield from super().since(store, call)


class NoFenceForNothing(Keyed):
    """A call by key that finds nothing leaves no fence."""

    def found_none(self, store, call):
        return store if call.id is None else super().found_none(store, call)


class FencesCancelsByKey(Keyed):
    """A cancel by id leaves a fence under the id alone."""

    def remove(self, store, id_, call):
        after = super().remove(store, id_, call)
        return after if call.id is None else after._replace(key_fence=store.key_fence)


class FencesCancelsUnderTheId(Keyed):
    """A cancel leaves a fence under the id, also where it named the key."""

    def remove(self, store, id_, call):
        return super().remove(store, id_, call)._replace(key_fence=store.key_fence)


class KeepsWithoutFence(Keyed):
    """What was kept is nothing new."""

    def keep(self, store):
        return store


class ReplacesWithoutFence(Keyed):
    """What was replaced leaves no fence under its id."""

    def replaced(self, store, id_):
        return self.depart(store, id_)


class LeavesWithoutFence(Keyed):
    """What is handed over young leaves a fence under its id alone."""

    def fence_young(self, store, _id, _changed):
        return store


class LowersFences(Keyed):
    """What leaves young writes its last change over the key's fence."""

    def fence_young(self, store, _id, changed):
        return store._replace(key_fence=changed)


class TakesFreeFieldsOnly(Keyed):
    """What comes back takes the key only if no field names another one, wherever that is."""

    def take(self, store, id_):
        return store._replace(holder=id_) if store.holder is None else store


class TakesTheKeyAlways(Keyed):
    """What comes back takes the key from what waits under it."""

    def take(self, store, id_):
        return store._replace(holder=id_)


class NeverTakesIt(Keyed):
    """What comes back does nothing about its key, which stays where it is."""

    def take(self, store, _id):
        return store


class FreesWhoeverHolds(Keyed):
    """What leaves frees its key, whoever has it by now."""

    def depart(self, store, id_):
        return super().depart(store, id_)._replace(holder=None)


class HoldsWhereverItIs(Keyed):
    """What is leased or dead holds the key."""

    def schedule_as(self, store, request, call):
        if store.holder is not None and not store.waits(store.holder) and call.verb != "replace":
            return store, CONFLICT if call.verb == "reject" else KEPT
        return super().schedule_as(store, request, call)
