"""Scanners that relay, on the same wire: they claim, publish, then ack or give back.

These steps carry no deadline, and the store keeps no answers to them: a request may run at any
later time. They are conditional on the state and on the token. A scanner that dies sends nothing
more; its next life is the same scanner, without a batch.
"""

from collections.abc import Iterator

from tests.protocol.calls import Ordered
from tests.protocol.model import LEASED, WAITING, Entry
from tests.protocol.world import Scanner, Scenario, Step, Word, World


def steps(world: World, scenario: Scenario, protocol: Ordered) -> Iterator[Step]:
    """The possible next steps."""
    for name, after in _steps(world, scenario, protocol):
        yield name, _without_vain_words(after, scenario, protocol)


def _steps(world: World, scenario: Scenario, protocol: Ordered) -> Iterator[Step]:
    for who, scanner in enumerate(world.scanners):
        if scanner is None:
            if world.asked < scenario.claims:
                yield f"{who} sends a claim", _asks(world, who)
        else:
            yield from _goes_on(world, who, scanner)
            yield f"{who} dies", world.with_scanner(who, None)
    for word in world.words:
        if word.step != "claim":
            yield from _comes_back(world, protocol, word)
        elif world.claimed < scenario.claims:
            yield from _claims(world, protocol, word)
    entry = world.store.entry
    if entry.place == LEASED and not entry.expired:
        yield "lease runs out", _with_entry(world, protocol.leases.run_out(entry))
    entry, taken = protocol.leases.reclaim(entry)
    if taken:
        yield "reclaim", _with_entry(world, entry)


def _with_entry(world: World, entry: Entry) -> World:
    return world._replace(store=world.store._replace(entry=entry))


def _asks(world: World, who: int) -> World:
    token = world.asked
    words = world.words | {Word("claim", token)}
    return world.with_scanner(who, Scanner(token))._replace(asked=token + 1, words=words)


def _says(world: World, who: int, step: str) -> World:
    """It drops its batch, whether or not the store gets the message."""
    words = world.words | {Word(step, world.scanners[who].token)}
    return world.with_scanner(who, None)._replace(words=words)


def _without_vain_words(world: World, scenario: Scenario, protocol: Ordered) -> World:
    """The same world without requests that can have no more effect, whenever they arrive."""
    keeps = protocol.reuses_tokens
    words = frozenset(
        word
        for word in world.words
        if (world.claimed < scenario.claims if word.step == "claim" else keeps)
        or word.token == world.store.entry.holder
    )
    return world if words == world.words else world._replace(words=words)


def _goes_on(world: World, who: int, scanner: Scanner) -> Iterator[Step]:
    batch = scanner.batch
    if batch is None:
        return
    if batch.outcome == "sent":
        yield f"{who} sends an ack", _says(world, who, "ack")
    elif batch.outcome == "unknown":
        yield f"{who} gives back", _says(world, who, "unknown")
    else:
        copied = world.with_copy(scanner.owner, batch.version, marked=batch.uncertain)
        yield f"{who} publishes", _tried(copied, who, "sent")
        yield f"{who} publishes, no answer", _tried(copied, who, "unknown")
        yield f"{who} stops", _says(world, who, "unsent")


def _tried(world: World, who: int, outcome: str) -> World:
    scanner = world.scanners[who]
    return world.with_scanner(who, scanner._replace(batch=scanner.batch._replace(outcome=outcome)))


def _claims(world: World, protocol: Ordered, word: Word) -> Iterator[Step]:
    if world.store.entry.place != WAITING:
        return
    token = protocol.token(word.token, world.claimed)
    entry, batch = protocol.leases.claim(world.store.entry, token)
    after = _with_entry(world, entry)._replace(claimed=world.claimed + 1)
    yield f"claim {word.token} arrives, its reply is lost", after
    if Scanner(word.token) in world.scanners:
        who = world.scanners.index(Scanner(word.token))
        taken = Scanner(token, world.store.owner, batch)
        yield f"claim {word.token} arrives", after.with_scanner(who, taken)


def _comes_back(world: World, protocol: Ordered, word: Word) -> Iterator[Step]:
    before = world.store
    if word.step != "ack":
        entry, taken = protocol.leases.nack(before.entry, word.token, word.step)
        if taken:
            yield f"{word.step} {word.token} arrives", _with_entry(world, entry)
        return
    _, taken = protocol.leases.ack(before.entry, word.token)
    if taken:
        after = world._replace(store=protocol.leave(before, handed=True))
        if before.entry.version not in world.calls[before.owner].versions:
            after = after._replace(wrong="lost")
        yield f"ack {word.token} arrives", after
