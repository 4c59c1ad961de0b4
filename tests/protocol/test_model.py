"""The model and the scripts on a real Redis, compared step by step from every state."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from celery_delayq.core.clock import When
from celery_delayq.core.store.scanner_steps import ScannerSteps
from tests.protocol.model import GONE, LEASED, REFUSED, WAITING, Entry, Fenced
from tests.store.support import NOW_MS, Store

PAPER = Fenced()
LEASE_MS = 30_000

Answer = object
Step = tuple[Callable[[Entry], tuple[Entry, Answer]], Callable[["Played"], Answer]]


def paper_claim(entry, who):
    after, batch = PAPER.claim(entry, who)
    return after, batch and (batch.version, batch.uncertain)


def paper_lease_runs_out(entry):
    ended = entry.place == LEASED and not entry.expired
    return (PAPER.run_out(entry) if ended else entry), None


class Played:
    """The scripts, playing the same entry; scanners remember the last batch they claimed."""

    def __init__(self, store: Store, steps_by_shard: list[ScannerSteps]):
        store.raw.flushdb()
        self.store, self.steps_by_shard, self.now = store, steps_by_shard, NOW_MS
        store.set_ms(self.now)
        self.batches: list = [None, None]
        store.schedule_relayed("a", 0, share=True)

    def claim(self, who):
        claimed, *_ = self.steps_by_shard[who].claim(1)
        if not claimed:
            return None
        self.batches[who] = claimed
        version = int(b'"delayq_due": 1 ' in claimed[0].message)
        return version, bool(claimed[0].uncertain)

    def ack(self, who):
        return bool(self.batches[who] and self.steps_by_shard[who].ack(self.batches[who]))

    def nack(self, who, verdict):
        if not self.batches[who]:
            return False
        return bool(self.steps_by_shard[who].nack(verdict, self.batches[who]))

    def lease_runs_out(self):
        self.now += LEASE_MS
        self.store.set_ms(self.now)

    def reclaim(self):
        return bool(self.steps_by_shard[0].reclaim())

    def retry(self):
        before = self.place()
        self.steps_by_shard[0].hand_over()
        return self.place() != before

    def cancel(self):
        return self.store.entries.cancel("a")[0].value

    def reschedule(self):
        return self.store.reschedule("a", When("at", 1))[0].value

    def place(self):
        there = {"relay": WAITING, "refused": REFUSED, "leased": LEASED}
        (place,) = [there[name] for name in self.store.places("a")] or [GONE]
        return place


STEPS: dict[str, Step] = {
    "lease runs out": (paper_lease_runs_out, Played.lease_runs_out),
    "reclaim": (PAPER.reclaim, Played.reclaim),
    "retry": (PAPER.retry, Played.retry),
    "cancel": (PAPER.cancel, Played.cancel),
    "reschedule": (PAPER.reschedule, Played.reschedule),
}
for _who in (0, 1):
    STEPS[f"{_who} claims"] = (
        lambda entry, who=_who: paper_claim(entry, who),
        lambda played, who=_who: played.claim(who),
    )
    STEPS[f"{_who} acks"] = (
        lambda entry, who=_who: PAPER.ack(entry, who),
        lambda played, who=_who: played.ack(who),
    )
    for _verdict in ("unsent", "unknown", "refused"):
        STEPS[f"{_who} gives back: {_verdict}"] = (
            lambda entry, who=_who, verdict=_verdict: PAPER.nack(entry, who, verdict),
            lambda played, who=_who, verdict=_verdict: played.nack(who, verdict),
        )


@dataclass(frozen=True)
class Situation:
    """A state of the store, the holders of batches, and the number of different batches."""

    entry: Entry
    claimed: tuple[bool, bool]


def ways() -> dict[Situation, tuple[str, ...]]:
    """A shortest way to each situation that the protocol can reach."""
    first = Situation(Entry(), (False, False))
    found, queue = {first: ()}, deque([first])
    while queue:
        here = queue.popleft()
        for name, (paper, _) in STEPS.items():
            entry, answer = paper(here.entry)
            claimed = tuple(
                out or (name == f"{who} claims" and answer is not None)
                for who, out in enumerate(here.claimed)
            )
            there = Situation(entry, claimed)
            if there not in found:
                found[there] = (*found[here], name)
                queue.append(there)
    return found


def test_from_every_state_every_step_does_what_the_paper_says(store):
    situations = ways()
    steps_by_shard = [store.steps(lease=LEASE_MS / 1000) for _ in range(2)]
    assert len(situations) > 40
    for here, way in situations.items():
        for name, (paper, step) in STEPS.items():
            played = Played(store, steps_by_shard)
            for each in way:
                STEPS[each][1](played)
            expected, answer = paper(here.entry)
            assert step(played) == answer, (way, name)
            assert played.place() == expected.place, (way, name)
            if played.place() != GONE:
                store.check()


@pytest.mark.parametrize("name", STEPS)
def test_every_step_is_answered_in_more_than_one_way_but_for_the_passing_of_time(name):
    answers = {STEPS[name][0](here.entry)[1] for here in ways()}
    assert len(answers) > 1 or name == "lease runs out"
