"""The package with a safeguard taken out, to see that the simulator misses it."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from tests.lab.simulator.driver import CUTS, Cut


@dataclass(frozen=True)
class Sabotage:
    """A safeguard that is taken out.

    Attributes:
        name: Of the safeguard; the driver maps it to code of the package.
        rules: The rules that are broken without it.
        rates: The rate of each fault, chosen so that few seeds are enough to find the break.
        keys: If it is about keys and tags, which entries have them; see `clients.planned`.
        pauses: Whether it is about pauses and late policies.
        messages: If it is about messages that become entries, whether they have names of their own.
        sweeps: Whether it is about selections.
        holds: Whether keys are held until their tasks have run.
        undoes: Whether it is about cancelled entries that come back.
        near: Whether it is about messages that are not adopted, as their time is near.
        acks_first: Workers acknowledge messages before they are stored.
        recurs: Whether it is about recurring rules.
        reshards: Whether the store is moved to another number of shards.
        loads: Whether rules are dumped and loaded.
        seed: The first to try: one that finds it, if few do.
        shards: The number of shards, if it is about several.
    """

    name: str
    rules: frozenset[str] = frozenset()
    rates: Mapping[str, float] | None = None
    keys: str = ""
    pauses: bool = False
    messages: str = ""
    sweeps: bool = False
    holds: bool = False
    undoes: bool = False
    near: bool = False
    acks_first: bool = False
    recurs: bool = False
    reshards: bool = False
    loads: bool = False
    seed: int = 0
    shards: int = 0

    def applied(self) -> AbstractContextManager[Any]:
        """Within this block, it is taken out of the package's Python."""
        return self.cut.applied() if self.cut else nullcontext()

    @property
    def cut(self) -> Cut | None:
        return CUTS.get(self.name)

    @property
    def is_there(self) -> bool:
        """Whether there is something to take out."""
        return self.acks_first or CUTS[self.name].is_there


NONE = Sabotage("none")


def _of(name: str, *rules: str, seed: int = 0, **rates: float) -> Sabotage:
    named = {kind.replace("_", " "): rate for kind, rate in rates.items()}
    return Sabotage(name, frozenset(rules), named, seed=seed)


def _keyed(name: str, *rules: str, keys: str = "some", **options: float) -> Sabotage:
    return replace(_of(name, *rules, **options), keys=keys)


def _paused(name: str, *rules: str, **options: float) -> Sabotage:
    return replace(_of(name, *rules, **options), pauses=True, keys="some")


def _taken(name: str, *rules: str) -> Sabotage:
    return replace(_of(name, *rules, **DELIVERED_AGAIN), messages="names")


def _held(name: str, *rules: str, **options: float) -> Sabotage:
    return replace(_keyed(name, *rules, **options), holds=True)


def _recurring(name: str, *rules: str, **options: float) -> Sabotage:
    return replace(_of(name, *rules, **options), recurs=True)


def _loaded(name: str, *rules: str, **options: float) -> Sabotage:
    return replace(_recurring(name, *rules, **options), loads=True)


def _resharded(name: str, *rules: str, **options: float) -> Sabotage:
    return replace(_recurring(name, *rules, **options), reshards=True)


DELIVERED_AGAIN = {"dead": 0.2, "taken_back": 0.5, "ack_lost": 0.2, "asleep": 0.05}
DIED_ON_THE_WAY = {"dead": 0.2, "held": 0.5}
TAKEN_BACK = {"taken_back": 0.2, "broker_away": 0.5}
UNCERTAIN = {"broker_away": 0.3, "publish_late": 0.2, "confirm_lost": 0.3}
# Seeds that found something once.
CHANGED_AFTER_SET_BACK = 3428598312
MOVED_BEHIND, FORGOTTEN = 3542401062, 1080609533
ENDED_TOO_SOON = 4209289643
FOUND = (
    *(CHANGED_AFTER_SET_BACK, 349079172, MOVED_BEHIND, FORGOTTEN),
    *(3277323117, 1147968336, 542272715, 2788837063, 4275186970, ENDED_TOO_SOON),
    *(2388756741, 678713434, 3893670740, 3422791183, 540721643, 997196541),
    3579785665,
)
FOUND_OVER_THREE = 843688820, 1435788035, 3394121035, 497196611, 1655081465, 610434938
LATE = {"interrupted": 0.5, "overtaken": 0.9}
HELD = {**LATE, "keys": "held"}
BACK = {"keys": "one", "dead": 0.5}

SABOTAGES = (
    _of(
        "answers are not looked up",
        *("twice", "answer", "late", "unasked"),
        reset=0.5,
        doubled=0.5,
    ),
    _of(
        "answers are forgotten early",
        *("twice", "answer", "order", "late", "unasked"),
        reset=0.5,
        doubled=0.5,
    ),
    _of("deadlines are not looked at", "late", held=0.3),
    _of(
        "fences are not looked at",
        "order",
        interrupted=0.5,
        overtaken=0.9,
        seed=25,
    ),
    _of(
        "a hand-over leaves no fence",
        "order",
        interrupted=0.5,
        overtaken=0.9,
        seed=45,
    ),
    _of(
        "the last change is not looked at",
        "order",
        interrupted=0.5,
        overtaken=0.9,
    ),
    _of("a lease that ran out is not marked", *("answer", "copies"), dead=0.2),
    _of("delivered tasks are forgotten at once", "answer"),
    _of("only the latest delivered tasks are known", "answer", seed=119),
    _of("delivered tasks are forgotten, not made the older ones", "answer", seed=119),
    _of(
        "after the clock was set back, delivered tasks are forgotten",
        "answer",
        clock_back=0.1,
        seed=234,
    ),
    _of("a leased entry counts as waiting", *("lost", "check"), seed=48),
    _of(
        "due times are not looked at",
        "early",
    ),
    _keyed(
        "fences of keys are not looked at",
        "order",
        **HELD,
        seed=38,
    ),
    _keyed(
        "the holder of a key is not looked at",
        "order",
        **HELD,
        seed=39,
    ),
    _keyed(
        "an entry that waits under a key is not looked for",
        *("unique", "kept", "answer"),
    ),
    _keyed(
        "an entry that comes back takes the key from one that waits",
        "unique",
        **BACK,
    ),
    _keyed(
        "an entry that comes back without its key has none",
        "unique",
        **BACK,
    ),
    _keyed(
        "an entry that comes back leaves the key to a leased one",
        *("unique", "ghost"),
        **BACK,
    ),
    _keyed(
        "an entry that leaves frees its key, though another one has it",
        "unique",
    ),
    _keyed(
        "an entry that leaves does not free its key",
        "ghost",
    ),
    _keyed(
        "an entry that leaves stays under its tags",
        "ghost",
    ),
    _keyed(
        "no process revokes a replaced task",
        *("revoked", "answer"),
    ),
    _keyed(
        "a replacement forgets when the first was scheduled",
        *("kept", "debounce"),
    ),
    _keyed(
        "no bound is kept of how long a task is put off",
        "debounce",
    ),
    _keyed(
        "a release is sure of an entry that may have been delivered",
        *("answer", "copies", "undone"),
        confirm_lost=0.7,
        seed=223,
    ),
    _keyed("a released entry loses its key", "unique", seed=9),
    _held("a key is free once its task was delivered", "held"),
    _held("a delivered task that holds its key is not looked for", "held"),
    _held(
        "an entry that is being published holds no key", *("exclusive", "unique", "held"), **BACK
    ),
    _held("a word is about any delivery", *("freed", "stuck"), seed=30),
    _held("a word is about any task", *("end", "freed")),
    _held("a lease ends the hold of a retry", "end", doubled=0.5, leases=0.5, seed=49),
    _held("a run that ends before it is acknowledged is not heard", "stuck", held=0.3, seed=147),
    _held(
        "a word frees the key of an entry that waits again", *("unique", "freed"), **BACK, seed=37
    ),
    _held("a run that begins does not set the end anew", "end"),
    _held("a key is forgotten before its end", "freed"),
    _held("a key is held for ever", *("stuck", "left over")),
    _held("an entry behind another one leaves", *("behind", "held", "exclusive", "unique")),
    _held("an entry stays behind though the key is free", "behind"),
    _held("two are behind one", "behind", seed=28),
    _held(
        "an entry that is being published does not hold its key against its own run",
        *("held", "unique"),
        keys="one",
        confirm_lost=0.7,
        seed=18,
    ),
    _held("an entry with the id of its run goes on as a retry does", "held"),
    _held("a retry does not take its key along", "held"),
    _held("an entry that goes leaves its name behind the holder", "behind", seed=13),
    _held("an entry that is moved goes before the holder", *("behind", "unique"), seed=69),
    replace(
        _held("an entry comes forward too late", *("skipped", "undone"), seed=1748),
        pauses=True,
    ),
    _paused(
        "a pause is not looked at",
        "paused",
    ),
    replace(
        _paused(
            "a pause or a resume may come late",
            "order",
            **LATE,
            seed=188,
        ),
        keys="",  # if all entries have some, it is far rarer
    ),
    _paused(
        "a parked entry stays there",
        *("check", "lost", "left over"),
    ),
    _paused(
        "an entry that runs now is paused as well",
        "paused",
        seed=20,
    ),
    _paused(
        "nothing is too late",
        "skipped",
    ),
    _paused(
        "an entry that was paused is late for it",
        "lost",
    ),
    _paused(
        "no process revokes a skipped task",
        "lost",
    ),
    _taken(
        "a message that became an entry is not marked",
        *("taken", "answer"),
    ),
    _taken(
        "a message is marked before it is an entry",
        *("answer", "lost"),
    ),
    _taken(
        "a writer does not look at marks",
        *("taken", "answer"),
    ),
    _taken(
        "a worker does not look at marks",
        "taken",
    ),
    replace(
        _of(
            "a message that came for the first time is taken for new",
            *("taken", "answer"),
            taken_back=0.9,
            asleep=0.1,
            reply_lost=0.2,
        ),
        messages="no names",
    ),
    replace(
        _taken("a worker that lets a message through does not mark it", "taken"),
        near=True,
        rates=DIED_ON_THE_WAY,
        seed=16,
    ),
    replace(
        _taken("a writer does not look whether it was let through", "taken"),
        near=True,
        rates=DIED_ON_THE_WAY,
        seed=16,
    ),
    replace(
        _of("in progress a cursor is one step behind", "twice", interrupted=0.5, seed=7),
        sweeps=True,
    ),
    replace(_of("an id is looked for on its own shard only", "answer"), shards=3),
    replace(_of("an entry lies on the shard of its id", *("answer", "unique")), shards=3),
    Sabotage(
        "after the clock was set back, a change has a time to come",
        frozenset({"order"}),
        seed=CHANGED_AFTER_SET_BACK,
    ),
    _held(
        "an entry that takes the id of an uncertain one is sure",
        *("answer", "undone"),
        keys="some",
        **UNCERTAIN,
        seed=5478,
    ),
    Sabotage(
        "an entry that is moved behind another one takes its key",
        frozenset({"behind"}),
        seed=MOVED_BEHIND,
    ),
    _held(
        "a run that goes on takes the key of another run of its id",
        *("exclusive", "held"),
        keys="some",
        **TAKEN_BACK,
        seed=9335,
    ),
    Sabotage(
        "a call that got a verdict ends before a copy of its request",
        frozenset({"late"}),
        seed=ENDED_TOO_SOON,
    ),
    replace(
        _keyed(
            "an undo takes the key from another entry", "unique", "ghost", keys="held", seed=263
        ),
        undoes=True,
    ),
    replace(
        _of("an undo takes the id of another entry", "lost", "unasked", "check", seed=76),
        undoes=True,
    ),
    _recurring("a run is written for any revision", "slot", asleep=0.1, seed=107),
    _recurring("a slot is not compared with the last one", "slot", held=0.3, asleep=0.2, seed=111),
    _recurring("a rule's old runs are not cleared up", "cleared"),
    _recurring("a rule writes before its old runs are cleared up", "slot", interrupted=0.9),
    _recurring("a rule is changed by late requests", "order", **LATE, seed=138),
    _recurring(
        "a rule that stays as it is leaves no fence",
        "order",
        interrupted=0.5,
        overtaken=0.5,
        seed=2742,
    ),
    _recurring("a changed rule goes on behind the last slot", *("missed", "slot")),
    _recurring("a resumed rule goes on behind the last slot", *("missed", "slot"), seed=50),
    _recurring(
        "a new rule's revisions begin at one", *("slot", "cleared"), held=0.3, asleep=0.2, seed=106
    ),
    _recurring(
        "a changed rule is looked at when it was changed",
        "left over",
        clock_back=0.05,
        interrupted=0.3,
        seed=96,
    ),
    _recurring("a process clears up though another one has", "cleared", asleep=0.2, seed=32),
    _recurring("a run that a user moved is cleared up as well", "cleared", seed=11),
    _resharded("a shard that is resharded takes changes", *("answer", "lost", "unasked")),
    _resharded("a resharding leaves rules behind", "unasked"),
    _loaded("a rule that is loaded takes the place of the one that is there", "loaded", seed=13),
    _loaded("a rule is loaded again though it is the same", "loaded"),
    _loaded(
        "a run is written again that was delivered before its rule was loaded", "slot", seed=24
    ),
    _loaded("a loaded rule has no last slot", "slot", "loaded"),
    replace(
        _taken("a message is acknowledged before it is stored", "lost"),
        acks_first=True,
    ),
)
