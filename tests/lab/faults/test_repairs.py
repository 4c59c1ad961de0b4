"""A thousand repairs under load, while scripts stop half-way and another actor deletes data.

- Callers schedule, cancel, reschedule and edit.
- Scanners deliver, publish, and die with entries that they have claimed.
- Each script may be stopped at any write.
- Places, claims, keys and tags vanish, and orphans appear.

At the end each task is checked: one for a list goes once, a published one goes once or marked, none
is lost, and no cancelled one comes back.

``DELAYQ_REPAIRS=20000`` runs more.
"""

import os
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from celery_delayq.contrib.care.check import check_store, repair_store
from celery_delayq.core.clock import When
from celery_delayq.core.servers.connection import packed
from celery_delayq.core.store import Entries, NewEntry, Outcome, Receipt
from celery_delayq.core.store.changes import Move, Removal, Rewrite
from celery_delayq.core.store.record import Extras, header_for, lane_for
from celery_delayq.core.store.scripts import Scripts
from celery_delayq.errors import AlreadyScheduled, StoreError
from tests.store.support import MEMBERSHIP, ROUTE, Store, new_record
from tests.store.test_aborted import sites_of, writing

pytestmark = pytest.mark.thorough

REPAIRS = int(os.environ.get("DELAYQ_REPAIRS", "1000"))
CROWD = 50  # entries at the same time, roughly at most
PACE = 0.004  # seconds between two steps of an actor, to leave the repairs a share of the machine
LEASE = 0.2  # seconds
FAR_MS = 3_600_000
MAIL = lane_for(queue="mail")
KEYS = ("k1", "k2", "")
TAGS = ((), ("red",), ("red", "blue"))

# The writes from a push to the removal of its records were tried before it, so they cannot fail.
STOPPED = """
local writes, is_pushed = 0, false
local function at_write(site, how, command, ...)
  writes = writes + 1
  if writes == {nth} and not is_pushed then
    if how == 'pcall' then return {{err = 'ERR stopped'}} end
    error('stopped')
  end
  if command == 'LPUSH' then is_pushed = true elseif command == 'HDEL' then is_pushed = false end
  return redis[how](command, ...)
end
"""


class FaultyScripts(Scripts):
    """Scripts, some of which stop before one of their writes."""

    writes: frozenset[str] = frozenset()
    dice = random.Random(0)
    chance = 0.0

    def _call(self, name, until, arguments):
        if self.dice.random() >= self.chance or name in ("check", "join"):
            return super()._call(name, until, arguments)
        call = self._prepare(name)
        text, _ = sites_of(call.script.text, self.writes)
        text = STOPPED.format(nth=self.dice.randint(1, 12)) + text
        tail = call.keys + packed(call.script.argv(arguments))
        whole = packed(["EVAL", text]) + tail
        return call.script.read(self.connection.execute(call.script.step, whole, until))


class FaultyStore(Store):
    """A store whose scripts stop with probability ``chance``."""

    def __init__(self, server):
        self._writes = frozenset(writing(server.client()))
        super().__init__(server, clocked=False)

    def faulty(self, seed, chance=0.02):
        made = FaultyScripts(self._client(), self.keys, self.settings)
        made.writes, made.dice, made.chance = self._writes, random.Random(seed), chance
        return made


@dataclass
class Books:
    """The record of all operations, by task."""

    scheduled: set = field(default_factory=set)
    cancelled: dict = field(default_factory=dict)  # id -> outcome
    published: list = field(default_factory=list)  # (id, whether marked)
    repaired: Counter = field(default_factory=Counter)  # (kind, what)


class Caller:
    def __init__(self, store, books, number):
        self.entries = Entries([store.faulty(number)], MEMBERSHIP)
        self.store, self.books, self.number = store, books, number
        self.dice, self.count = random.Random(number), 0
        self.mine = []

    def step(self):
        if self.store.raw.hlen(self.store.keys["records"]) < CROWD:
            self.schedule(self.dice.choice((1, 1, 5)))
        step = self.dice.randrange(6)
        if not self.mine:
            return
        task_id = self.dice.choice(self.mine[-60:])
        if step == 0:
            self.cancel(task_id)
        elif step == 1:
            self.insist(lambda: self.entries.change(task_id, Move(self.when())))
        elif step == 2:
            self.insist(lambda: self.edit(task_id))
        elif step == 3 and self.dice.random() < 0.1:
            self.insist(lambda: self.entries.pause(MAIL, "mail"))
        elif step == 4:
            self.insist(lambda: self.entries.resume(MAIL))

    def insist(self, step):
        """Repeat a step that raises an error, until it succeeds."""
        for _ in range(50):
            with suppress(StoreError):
                return step()
        raise AssertionError("it fails again and again")

    def when(self):
        return When("after", self.dice.choice((0, 20, 200, FAR_MS)))

    def schedule(self, count):
        new = [self.new_entry() for _ in range(count)]
        try:
            told = self.entries.schedule(new)
        except StoreError:
            return  # some may be there, or have left: none of these is sent again
        for one, answer in zip(new, told, strict=True):
            self.note(one.task_id, answer)

    def note(self, task_id, answer):
        is_there = isinstance(answer, AlreadyScheduled) and answer.task_id == task_id
        if isinstance(answer, Receipt):
            for gone in answer.cancelled:
                self.books.cancelled[gone.task_id] = gone.outcome
            is_there = not answer.existed
        if is_there:
            self.books.scheduled.add(task_id)
            self.mine.append(task_id)

    def new_entry(self):
        self.count += 1
        relayed, task_id = self.dice.random() < 0.5, f"{self.number}-{self.count}"
        to = header_for(*(("R", ROUTE) if relayed else ("L", "celery")))
        extras = Extras(self.dice.choice(KEYS), self.dice.choice(TAGS))
        record = new_record(task_id, to, share=self.dice.random() < 0.7).with_extras(extras)
        return NewEntry(task_id, self.when(), record, "keep" if extras.key else "")

    def cancel(self, task_id):
        tries = []

        def step():
            tries.append(None)
            return self.entries.change(task_id, Removal())[0]

        outcome = self.insist(step)
        if outcome in (Outcome.DONE, Outcome.UNCERTAIN):
            self.books.cancelled[task_id] = outcome
        elif outcome is Outcome.NOT_FOUND and len(tries) > 1:
            # A stopped request had removed it; it is unknown whether as DONE or UNCERTAIN.
            self.books.cancelled[task_id] = Outcome.UNCERTAIN

    def edit(self, task_id):
        found = self.entries.find(task_id)
        if found is None or found.record is None:
            return
        kind = ("L", "celery") if found.record.is_for_list else ("R", ROUTE)
        new = new_record(task_id, header_for(*kind), "new", share=self.dice.random() < 0.7)
        self.entries.change(task_id, Rewrite(found.record, found.record.with_message(new)))


class Scanner:
    def __init__(self, store, books, number):
        self.steps = store.steps(lease=LEASE, batch_size=20)
        self.steps._scripts = store.faulty(number)
        self.store, self.books, self.dice = store, books, random.Random(number)

    def step(self):
        with suppress(StoreError):  # it dies, with its claimed entries
            self.steps.hand_over()
            self.steps.reclaim()
            self.relay(self.steps.claim(self.dice.randint(1, 5))[0])

    def relay(self, claimed):
        for entry in claimed:
            fate = self.dice.random()
            if fate < 0.1:
                return  # killed before it published
            if fate < 0.2:
                self.steps.nack("refused", [entry], wait=0.01, reason="NO_ROUTE")
                continue
            self.books.published.append((entry.task_id, bool(entry.uncertain)))
            if fate < 0.3:
                continue  # killed before it acknowledged
            self.steps.ack([entry])


DROP = """
local member, id = ARGV[1], string.sub(ARGV[1], 7)
if not redis.call('ZSCORE', KEYS[1], member) then return end
local is_lease = string.find(KEYS[1], ':leased$')
if is_lease and redis.call('HEXISTS', KEYS[2], id) == 0 then return end
if ARGV[2] == 'claim' then
  redis.call('HDEL', KEYS[2], id)
else
  redis.call('ZREM', KEYS[1], member)
end
"""


# The kinds of findings that it makes.
DAMAGE = {"record_without_place", "place_without_record", "wrong_key", "wrong_tag", "leftover"}


class Vandal:
    """Deletes and damages repairable data, or adds orphans."""

    def __init__(self, store, number):
        self.raw, self.keys, self.dice = store.raw, store.keys, random.Random(number)

    def step(self):
        name = self.dice.choice(("due", "relay", "leased", "refused", "parked", "tags"))
        self.dice.choice((self.drop_member, self.drop_field, self.leave_orphan))(name)

    def drop_member(self, name):
        members = self.raw.zrange(self.keys[name], 0, -1)
        if members:
            self.drop(name, self.dice.choice(members), "member")

    def drop_field(self, name):
        if name == "tags":
            for key in self.raw.hkeys(self.keys["holders"]):
                self.raw.hdel(self.keys["holders"], key)
        for member in self.raw.zrange(self.keys["leased"], 0, 0):
            self.drop("leased", member, "claim")

    def drop(self, name, member, what):
        """Keep either the lease or its claim: without both, there is no trace of the attempt."""
        self.raw.eval(DROP, 2, self.keys[name], self.keys["claims"], member, what)

    def leave_orphan(self, name):
        if name == "tags":
            self.raw.zadd(self.keys["tags"], {b"red\0......orphan": 0})
            self.raw.hset(self.keys["holders"], f"o{self.dice.random()}", "orphan")
        elif name == "parked":
            self.raw.hset(self.keys["errors"], "orphan", "?")
            self.raw.hset(self.keys["claims"], "orphan", "1:0:0:1:")
        else:
            self.raw.zadd(self.keys[name], {b"\xff.....orphan": time.time() * 1000 + FAR_MS})


def mend(entries, books):
    found = list(check_store(entries))
    for some in repair_store(entries, found):
        books.repaired.update((one.finding.kind, one.what) for one in some)
    return found


@pytest.fixture
def store(redis_server, redis_url):
    made = FaultyStore(redis_server)
    yield made
    made.close()


def test_a_thousand_repairs_lose_nothing_double_nothing_and_revive_nothing(store):
    books, over = Books(), threading.Event()
    # They share a template during the whole test, so that its count is never 0.
    to = header_for("L", "celery")
    sharing = [
        NewEntry(one, When("after", FAR_MS), new_record(one, to, share=True)) for one in "abcde"
    ]
    store.entries.schedule(sharing)
    books.scheduled.update(one.task_id for one in sharing)
    actors = [Caller(store, books, 1), Caller(store, books, 2), Scanner(store, books, 3)]
    actors += [Scanner(store, books, 4), Vandal(store, 5)]

    def act(actor):
        while not over.wait(PACE):
            actor.step()

    repairer = Entries([store.faulty(6)], MEMBERSHIP)
    with ThreadPoolExecutor(len(actors)) as pool:
        acting = [pool.submit(act, actor) for actor in actors]
        try:
            for _ in range(REPAIRS):
                with suppress(StoreError):  # stopped half-way; the next one goes on
                    mend(repairer, books)
                assert not [one for one in acting if one.done()], "an actor has failed"
        finally:
            over.set()
        for one in acting:
            one.result(30)

    settle(store, books)
    judge(store, books)


def settle(store, books):
    """End the faults: mend the remaining findings, deliver all entries, and retry the dead ones."""
    for _ in range(5):
        mend(store.entries, books)
    shard_steps = store.steps()
    store.entries.resume(MAIL)
    for raw_id in store.raw.hkeys(store.keys["records"]):
        store.reschedule(raw_id.decode(), When("at", 0))
    for _ in range(3):
        store.lease_out()
        shard_steps.reclaim()
        while shard_steps.hand_over().handed_over:
            pass
        for entry in shard_steps.claim(500)[0]:
            books.published.append((entry.task_id, bool(entry.uncertain)))
            shard_steps.ack([entry])
    mend(store.entries, books)
    assert [str(one) for one in check_store(store.entries)] == []
    assert store.entries.counts().dead == 0
    assert not store.raw.exists(store.keys["records"], store.keys["templates"])


def judge(store, books):
    pushed = Counter(store.arrived())
    published = Counter(task_id for task_id, _ in books.published)
    unmarked = Counter(task_id for task_id, is_marked in books.published if not is_marked)
    cancelled = {one for one, outcome in books.cancelled.items() if outcome is Outcome.DONE}
    delivered = pushed.keys() | published.keys()
    assert max(pushed.values()) == 1, "delivered twice"
    assert max(unmarked.values()) == 1, "published twice without a mark"
    assert delivered & cancelled == set(), "came back after it was cancelled"
    assert books.scheduled - books.cancelled.keys() - delivered == set(), "lost"
    kinds = {kind for kind, what in books.repaired if what in ("done", "back", "lost", "dead")}
    assert len(delivered) > REPAIRS / 10, "the load was too low"
    assert kinds >= DAMAGE, kinds
