"""Every operation, one row for each script: how it is called, and its effect.

    store     Entries (callers) and ScannerSteps (scanners)             Operation.take
    face      the methods of DelayQ                                     Operation.face
    terminal  celery delayq ...                                         Operation.cli

Each new operation gets its row here; every claim of this folder is then tested on it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace

import pytest

from celery_delayq import DelayQ, Outcome
from celery_delayq.contrib import rule_store
from celery_delayq.contrib.care import dump
from celery_delayq.contrib.care.check import Finding, check_store
from celery_delayq.core.clock import When
from celery_delayq.core.hooks import part_of
from celery_delayq.core.store import (
    Cancelled,
    Entry,
    Filter,
    Listing,
    counts,
    entries,
    selection,
)
from celery_delayq.core.store.changes import Removal, Rewrite
from celery_delayq.core.store.delivery import LeasedEntry, ScannerSteps
from celery_delayq.core.store.entries import OldEntry
from celery_delayq.core.store.keys import target_of
from celery_delayq.core.store.membership import Membership, Registration
from celery_delayq.core.store.record import Extras, header_for, label_of, lane_for
from celery_delayq.core.store.scripts import load
from celery_delayq.core.store.selection import survey
from celery_delayq.errors import AlreadyScheduled, InvalidDump, InvalidOption, NotUndone
from tests.app.support import FAR
from tests.store.arguments import arguments
from tests.store.support import FAR_MS, NOW_MS, Store, new_record

Call = Callable[[DelayQ, str], object]
Take = Callable[["Prepared"], object]

MAIL = lane_for(queue="mail")
KEEPS = (60, 10)  # for a minute, of ten tasks

# Methods of DelayQ that call no script, and those that await another one.
NO_OPERATIONS = {"acting", "close", "due_of", "scanner"}
NO_OPERATIONS |= {"aget", "acancel", "areschedule", "arun_now", "aschedule", "aselect"}
NO_OPERATIONS |= {"areconcile"}
# Lines that do nothing to a waiting task.
ON_THE_DEAD = ("retry {id}", "remove {id}")
# `resume` exits with status 1 if nothing was paused, `free` if no task holds the key, `health` if
# no scanner is alive.
HEALTH = ("health", "health --here")
SERVICES = ("scan", "web")  # run until they are stopped
NO_OPERATION_COMMANDS = (
    *("doctor", "free a", "load", "reshard 2", "resume --all --yes", "upgrade"),
    *HEALTH,
    *SERVICES,
)
# It writes an event of another operation, if there is a history; tests/app/test_history.py has it.
NOTES = ("note",)
# While this release knows one format, it does nothing; tests/versions has it.
UPGRADE = ("upgrade",)
# Scripts for a store in which all operations are refused; tests/reshard has them.
RESHARD = ("close", "fill_rest", "move_in", "move_out", "move_rest", "reshard")


@dataclass(frozen=True)
class Prepared:
    """A store where there is something to do for each operation.

    - "list" is due and bound for a list; it was read.
    - "waiting" is due and bound for a relay.
    - "claimed" has a lease that ran out.
    - "dead" is dead.
    - "parked" is parked, as its queue, mail, is paused.
    - "revoked" was cancelled; its result backend still has to store REVOKED.
    - "operation" is the name of a call that was answered just now.
    - "gone" is owed REVOKED, but no scanner knows of that.
    - "left" was delivered and holds "its key".
    - "rule" is a recurring rule, at which a writer has to look.
    - "undoable" was cancelled, and an undo can bring it back.

    The scanner gave its heartbeat.
    """

    store: Store
    steps: ScannerSteps
    claimed: list[LeasedEntry]
    cancelled: Cancelled
    read: Entry
    operation: bytes
    revision: int  # of the rule

    ids = ("list", "claimed", "waiting", "dead", "parked")


def extras(task_id: str) -> Extras:
    """A key of its own, a tag that all entries have, and one more tag."""
    return Extras(f"key of {task_id}", ("all", task_id))


def rule_row(name: str, **fields: str) -> str:
    """The fields of a rule's row, as JSON."""
    plan = {"digest": "abc", "home": name, "plan": "[]", "flags": "-n", "version": "0"}
    return json.dumps({**plan, "by": "host", "source": "", **fields})


def _surveyed(ready: Prepared) -> object:
    """The ids of those that share a template; how many others there are, and how many are dead."""
    slices = [*survey(ready.store.shard)]
    ids = sorted(task_id for one in slices for _, _, task_id, _ in one.shared)
    return ids, sum(len(one.whole) for one in slices), sum(one.dead for one in slices)


def _rule(store: Store, name: str, what: str = "put") -> object:
    given = arguments("rule", called=name, what=what, given=rule_row(name))
    (answer,) = store.shard.calls.call("rule", **given)
    return answer


def prepare(store: Store) -> Prepared:
    ready = fitting(store)
    store.raw.hset(store.keys["outbox_messages"], "gone", "no message")
    return ready


def fitting(store: Store) -> Prepared:
    """The same store, in a state in which a check finds nothing."""
    shard_steps = store.steps(lease=1)
    # Names and operations, and so the traces of them, would differ the next time.
    shard_steps.name = "scanner"
    shard_steps.hand_over()
    store.at("parked", "parked", by=shard_steps, extras=extras("parked"), queue="mail")
    store.schedule("list", share=True, extras=extras("list"))
    store.at("dead", "dead", by=shard_steps, extras=extras("dead"))
    claimed = store.at("leased", "claimed", by=shard_steps, extras=extras("claimed"))
    store.at("relay", "waiting", due_ms=NOW_MS + 1, extras=extras("waiting"))
    store.set_ms(NOW_MS + 2000)
    store.schedule("revoked", FAR_MS, share=True)
    cancelled = store.entries.change("revoked", Removal("caller"))[1].cancelled
    store.raw.zadd(store.keys["outbox"], {"revoked": 0})
    store.raw.hset(store.keys["holders"], "its key", b"left\xff1.2")
    store.raw.zadd(store.keys["held"], {"its key": FAR_MS})
    store.schedule("undoable", FAR_MS, share=True, extras=extras("undoable"))
    with part_of("bulk"):
        store.entries.change("undoable", Removal(undo=KEEPS))
    _rule(store, "rule")
    (operation, *_), _ = store.known_calls()
    read, revision = store.entries.find("list"), revision_of(store)
    return Prepared(store, shard_steps, claimed, cancelled, read, operation, revision)


@dataclass(frozen=True)
class Operation:
    """One row."""

    script: str  # its name
    by: str  # the role that calls it: "caller", "scanner" or "worker"
    take: Take  # calls it at the store's level, in a prepared store
    answer: object  # what that then returns
    changes: bool = True  # whether it writes to Redis
    refused_when_full: bool = False
    when_full: object = None  # its answer on a full Redis, if that is another one
    ends: str = ""  # the id of an entry that it removes for good, so that no test finds it anywhere
    # The methods of ``DelayQ`` that run it, with a call of each for a task's id.
    face: Mapping[str, Call] = field(default_factory=lambda: MappingProxyType({}))
    cli: tuple[str, ...] = ()  # its lines after ``celery delayq``
    step: str = ""  # as errors name it, if not by its script

    @property
    def name(self) -> str:
        return self.step or self.script


def _schedule(delayq: DelayQ, task_id: str) -> object:
    return delayq.schedule(delayq.app.signature("t", task_id=task_id), at=FAR)


def _schedule_many(delayq: DelayQ, task_id: str) -> object:
    return delayq.schedule_many(delayq.app.signature("t"), [((), {}, FAR, task_id)])


KEYS = ["key of list", "key of dead", "its key", "key of undoable", "unknown"]


def _reconcile(delayq: DelayQ, task_id: str) -> object:
    report = delayq.reconcile("celery.backend_cleanup", [(as_key(task_id), FAR)], tag="all")
    for case in report.first.get("refused", ()):
        raise case.error
    return report


def as_key(text: str) -> str:
    """A unique key is shorter than an id, and has no NUL."""
    return text[:60].replace("\0", "") if isinstance(text, str) else text


def _counted(ready: Prepared) -> tuple[int, ...]:
    counts = ready.store.entries.counts()
    return counts.scheduled, counts.in_flight, counts.dead, counts.scanners


def _tallied(ready: Prepared) -> object:
    tallies, is_complete = ready.store.entries.tallies(1000)
    return {one.label: (one.waiting, one.overdue) for one in tallies}, is_complete


def _sifted(ready: Prepared) -> list[str]:
    pages = ready.store.pages(Filter(tasks=("tests.remind",)))
    return [member[6:].decode() for page in pages for member in page]


def _peeked(ready: Prepared) -> list[tuple[str, str]]:
    chosen = Filter()
    members = [member for page in ready.store.pages(chosen) for member in page]
    seen = selection.read(ready.store.shard, chosen, members)
    return [(entry.task_id, entry.state.value) for _, entry in seen]


def _dumped(ready: Prepared) -> list[tuple[str, str]]:
    return [(kept.task_id, kept.place) for kept in dump.kept_in(ready.store.entries)]


def _load(ready: Prepared) -> list[object]:
    record = new_record("loaded", header_for("L", "celery"))
    return entries.restore(ready.store.entries, [OldEntry("loaded", NOW_MS, NOW_MS * 1000, record)])


def _load_one(delayq: DelayQ, task_id: str) -> object:
    try:
        return delayq.load(dumped(task_id))
    except InvalidDump as error:  # the message names the line of the option
        raise InvalidOption("task_id", task_id, error.why) from error


def _say_ended(ready: Prepared) -> object:
    words = ["claimed", "key of claimed", ready.claimed[0].hand_over, 0, 0]
    return ready.store.scripts.call("hold", words=words)


def _released(ready: Prepared) -> list[Outcome | None]:
    target, record = target_of("list"), ready.read.record
    new = record.released(new_record("list", header_for("L", "celery")))
    return [ready.store.entries.change(target, Rewrite(record, new, releases=True))[0]]


MISPLACED = Finding("record_without_place", "list", "records", b"list")


def _repaired(ready: Prepared) -> object:
    """REVOKED that no task is owed is removed; a lease that is an entry's only place stays."""
    lease = ("leased", ready.claimed[0].member)
    findings = ["owed_revoked", "outbox_messages", "gone", "second_place", *lease]
    return sorted(ready.store.scripts.call("repair", findings=findings))


def _recounted(ready: Prepared) -> object:
    counts = ["x", "drop", 0, 0, 0]
    return ready.store.scripts.call("recount", **arguments("recount", own="me", counts=counts))


def _undone(ready: Prepared) -> object:
    ids = ["undoable"]
    text, _ = ready.store.shard.calls.call("undo", **arguments("undo", ids=ids))
    return text


def revision_of(store: Store) -> int:
    """The revision of the rule; 0 without one."""
    row = store.raw.hget(store.keys["rules"], "rule")
    return int(json.loads(row)["revision"]) if row else 0


def _fire(ready: Prepared) -> object:
    record = new_record("fired", header_for("L", "celery"))
    run = (FAR_MS, "fired", FAR_MS, record.header, record.labels + record.body, "")
    asked = arguments("fire", called="rule", revision=ready.revision, look=FAR_MS, runs=run)
    (answer,) = ready.store.shard.calls.call("fire", **asked)
    return b"done" if answer == b"past" else answer  # when it is taken again


def _named(ready: Prepared) -> list[tuple[bytes, int]]:
    given = arguments("rules_named", process="p", digest="d", names="n", full=1)
    answer = ready.store.scripts.call("rules_named", **given)
    return [(each.names, each.living) for each in answer.found]


def _rules(ready: Prepared) -> list[bytes]:
    answer = ready.store.scripts.call("rules", **arguments("rules"))
    return [row.name for row in answer.found]


def _runs(ready: Prepared) -> list[list[str]]:
    rule = SimpleNamespace(name="rule", shard=0)
    found = rule_store.runs_of(ready.store.entries, [(rule, ["fired", "unknown"])])
    return [fates for _, fates in found]


def _claimed(ready: Prepared) -> list[bytes]:
    answer = ready.store.scripts.call("rules_ahead", **arguments("rules_ahead"))
    return answer.names or [b"rule"]  # when it is taken again


def _every(delayq: DelayQ, name: str) -> object:
    # A name is shorter than an id, and has no NUL.
    return delayq.every(as_key(name), delayq.app.signature("t"), 3600)


def _undo_one(delayq: DelayQ, task_id: str) -> object:
    try:
        return delayq.undo(task_id)
    except NotUndone:  # as no cancel is kept
        return None


def _undoable(ready: Prepared) -> list[tuple[bytes, bytes]]:
    asked = arguments("undoable", part="undo")
    return [(row.id, row.bulk) for row in ready.store.scripts.call("undoable", **asked).found]


def take_again(operation: "Operation", ready: Prepared) -> object:
    """Repeat a call that raised an error; if the first one scheduled the task, it is there."""
    try:
        answer = operation.take(ready)
    except AlreadyScheduled as error:
        whole = ready.store.record(error.task_id) and ready.store.places(error.task_id)
        return operation.answer if whole else error
    return operation.answer if answer == ["here"] else answer


def of_id(*methods: str) -> dict[str, Call]:
    """Methods that take a task's id and need no more."""
    return {
        name: lambda delayq, task_id, name=name: getattr(delayq, name)(task_id) for name in methods
    }


def reads(script: str, take: Take, answer: object, **more: object) -> Operation:
    """A caller's operation that changes nothing."""
    return Operation(script, "caller", take, answer, changes=False, **more)


def writes(script: str, take: Take, answer: object, **more: object) -> Operation:
    """A caller's operation that changes something."""
    return Operation(script, "caller", take, answer, **more)


def adds(script: str, take: Take, answer: object, **more: object) -> Operation:
    """A caller's operation that takes more memory, so a full Redis refuses it."""
    return Operation(script, "caller", take, answer, refused_when_full=True, **more)


OPERATIONS = (
    writes(
        "join",
        lambda ready: Registration(ready.store.scripts_with(timeout=60.0), Membership()).join()[0],
        (NOW_MS + 2000) * 1000,
    ),
    adds(
        "schedule",
        lambda ready: ready.store.schedule("new", share=True),
        NOW_MS,
        face={"schedule": _schedule, "schedule_many": _schedule_many},
    ),
    writes(
        "replicate",
        lambda ready: ready.store.scripts.call("replicate", operations=[ready.operation]),
        1,
    ),
    writes(
        "cancel",
        lambda ready: ready.store.entries.change("list", Removal())[0],
        Outcome.DONE,
        ends="list",
        face=of_id("cancel"),
        cli=("cancel {id}", "cancel --all --yes", "cancel --tag a --dry-run"),
    ),
    writes(
        "reschedule",
        lambda ready: ready.store.reschedule("list", When("at", FAR_MS)),
        (Outcome.DONE, FAR_MS),
        # `remove` runs the script of a cancel, but removes no waiting task.
        face={
            "reschedule": lambda delayq, task_id: delayq.reschedule(task_id, FAR),
            **of_id("run_now", "retry", "remove"),
        },
        cli=(
            "reschedule {id} +5m",
            "reschedule --task a --only later --yes +5m",
            "run-now {id}",
            "run-now --queue a --yes",
            *ON_THE_DEAD,
            "retry --state dead --yes",
            "remove --state dead --yes",
        ),
    ),
    reads(
        "sift",
        _sifted,
        ["parked", "list", "dead", "claimed", "waiting"],
        face={"select": lambda delayq, _: list(delayq.select(all=True))},
    ),
    reads(
        "peek",
        _peeked,
        [
            ("parked", "PAUSED"),
            ("list", "SCHEDULED"),
            ("dead", "DEAD"),
            ("claimed", "IN_FLIGHT"),
            ("waiting", "SCHEDULED"),
        ],
    ),
    adds(
        "rewrite",
        lambda ready: ready.store.edit("list", "new", entry=ready.read),
        Outcome.DONE,
        face={"edit": lambda delayq, task_id: delayq.edit(task_id, priority=3)},
        cli=("edit {id} --priority 3", "edit --queue a --new-queue b --add-tag c --yes"),
        step="edit",
    ),
    writes(
        "free",
        lambda ready: ready.store.entries.free("its key"),
        (Outcome.DONE, "left"),
        face={"free": lambda delayq, text: delayq.free(key=as_key(text))},
    ),
    reads(
        "held",
        lambda ready: ready.store.entries.holder("its key").id,
        "left",
        face={"holder": lambda delayq, text: delayq.holder(key=as_key(text))},
        cli=("keys", "keys a --json"),
    ),
    reads(
        "keyed",
        lambda ready: [one.word for one in ready.store.entries.keyed(KEYS)],
        ["SCHEDULED", "DEAD", "held", "cancelled", "none"],
        face={"reconcile": _reconcile},
    ),
    adds(
        "rewrite",
        _released,
        [Outcome.DONE],
        cli=("release --all --yes", "release --tag a --dry-run"),
        step="release",
    ),
    reads(
        "find",
        lambda ready: ready.store.entries.find("list").due_ms,
        NOW_MS,
        face=of_id("get", "result", "state", "handed_over"),
        cli=("show {id}", "show {id} --json"),
    ),
    reads(
        "page",
        lambda ready: [one.task_id for one in ready.store.entries.waiting(Listing(0, FAR_MS))],
        ["parked", "list", "waiting"],
        face={"tasks": lambda delayq, _: list(delayq.tasks())},
        cli=("list", "list --json", "list --state scheduled"),
    ),
    writes(
        "pause",
        lambda ready: ready.store.entries.pause(lane_for(queue="post"), "post"),
        None,
        face={"pause": lambda delayq, task_id: delayq.pause(queue=task_id)},
        cli=("pause --queue mail", "pause --task a.b --late", "pause --all --yes"),
    ),
    writes(
        "resume",
        lambda ready: ready.store.entries.resume(MAIL),
        True,
        face={"resume": lambda delayq, task_id: delayq.resume(queue=task_id)},
    ),
    reads(
        "pauses",
        lambda ready: [(one.queue, one.parked) for one in ready.store.entries.pauses()],
        [("mail", 1)],
        face={"pauses": lambda delayq, _: delayq.pauses()},
    ),
    reads(
        "history",
        lambda ready: ready.store.entries.history(10),
        [],
        face={"history": lambda delayq, _: delayq.history()},
        cli=("history", "history --json"),
    ),
    reads("counts", _counted, (2, 1, 1, 1), face={"counts": lambda delayq, _: delayq.counts()}),
    reads(
        "ahead",
        lambda ready: counts.falling_due(ready.store.entries.shards, 1000, 2),
        (NOW_MS + 2000, [0, 0]),
    ),
    reads(
        "scanners", lambda ready: [one.name for one in ready.store.entries.scanners()], ["scanner"]
    ),
    reads(
        "agreed",
        lambda ready: Registration(ready.store.scripts, Membership()).check_membership(),
        "",
        face={"health": lambda delayq, _: delayq.health()},
    ),
    reads(
        "queues",
        _tallied,
        ({label_of("celery"): (2, 2)}, True),
        face={"status": lambda delayq, _: delayq.status()},
        cli=("status", "status --json"),
    ),
    reads(
        "check",
        lambda ready: [one.kind for one in check_store(ready.store.entries)],
        ["owed_revoked"],
        face={"check": lambda delayq, _: list(delayq.check())},
        cli=("check", "check --json"),
    ),
    writes(
        "repair",
        _repaired,
        [b"done", b"gone"],
        face={"repair": lambda delayq, _: delayq.repair(MISPLACED)},
        cli=("check --repair --yes", "check --repair --json --yes"),
    ),
    writes("recount", _recounted, [b"me", [b"gone"]]),
    reads(
        "dump",
        _dumped,
        [
            ("parked", "paused"),
            ("list", "waiting"),
            ("dead", "dead"),
            ("claimed", "in_flight"),
            ("waiting", "waiting"),
        ],
        face={"dump": lambda delayq, _: list(delayq.dump())},
        cli=("dump",),
    ),
    reads(
        "survey",
        _surveyed,
        ([b"claimed", b"list", b"parked", b"waiting"], 0, 1),
        face={"preflight": lambda delayq, _: delayq.preflight()},
        cli=("preflight", "preflight --json"),
    ),
    adds("load", _load, ["loaded"], face={"load": _load_one}),
    adds("undo", _undone, f"done:{FAR_MS}".encode(), face={"undo": _undo_one}),
    reads(
        "undoable",
        _undoable,
        [(b"undoable", b"bulk")],
        face={
            "undoable": lambda delayq, _: list(delayq.undoable()),
            "undo_all": lambda delayq, _: delayq.undo_all("bulk"),
        },
        cli=("undo", "undo --json", "undo --bulk bulk"),
    ),
    writes(
        "reconciled",
        lambda ready: ready.store.entries.note_reconciled("all", "found", 1),
        None,
    ),
    writes("secret", lambda ready: len(ready.store.entries.secret()[1]), 64),
    reads("kept", lambda ready: ready.store.entries.kept("undoable").entry.due_ms, FAR_MS),
    writes("forgo", lambda ready: ready.store.entries.forgo(["undoable"]), None),
    writes(
        "rule", lambda ready: _rule(ready.store, "rule", "pause"), b"done", face={"every": _every}
    ),
    adds("fire", _fire, b"done"),
    reads(
        "rules",
        _rules,
        [b"rule"],
        face={
            "rules": lambda delayq, _: delayq.rules(),
            "rule": lambda delayq, name: delayq.rule(as_key(name)),
        },
        cli=("rules", "rules list --json"),
    ),
    reads("runs", _runs, [["unknown", "unknown"]]),
    writes("rules_ahead", _claimed, [b"rule"]),
    writes(
        "rules_named",
        _named,
        [(b"n", 1)],
    ),
    Operation(
        "hand_over",
        "scanner",
        lambda ready: ready.steps.hand_over().handed_over,
        1,
        when_full=0,
        face={"hand_over": lambda delayq, _: delayq.hand_over()},
    ),
    Operation(
        "claim",
        "scanner",
        lambda ready: [one.task_id for one in ready.steps.claim(5)[0]],
        ["waiting"],
    ),
    Operation("ack", "scanner", lambda ready: ready.steps.ack(ready.claimed), 1, ends="claimed"),
    Operation(
        "nack",
        "scanner",
        lambda ready: ready.steps.nack("dead", ready.claimed, reason="NO_ROUTE"),
        1,
    ),
    Operation(
        "owed", "scanner", lambda ready: [one.task_id for one in ready.steps.owed()], ["revoked"]
    ),
    Operation(
        "mark_stored", "scanner", lambda ready: ready.steps.mark_stored([ready.cancelled]), set()
    ),
    Operation("reclaim", "scanner", lambda ready: ready.steps.reclaim(), ["claimed"]),
    Operation(
        "arrive", "worker", lambda ready: ready.store.arrive("one", 2), 2, refused_when_full=True
    ),
    Operation("hold", "worker", _say_ended, 1),
    Operation("leave", "scanner", lambda ready: ready.steps.leave(), None),
)


def dumped(task_id: str) -> list[dict[str, object]]:
    """A dump of one task."""
    message = {
        "body": "W1tdLCB7fSwge31d",
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": "t", "id": task_id},
        "properties": {"correlation_id": task_id, "body_encoding": "base64"},
    }
    task = {
        "kind": "task",
        "id": task_id,
        "state": "waiting",
        "due_ms": FAR * 1000,
        "scheduled_us": NOW_MS * 1000,
        "route": {"queue": "celery", "list": "celery"},
        "message": message,
    }
    return [{"kind": "dump", "format": 1}, task, {"kind": "end", "tasks": 1, "unreadable": 0}]


FACES = [(one, name) for one in OPERATIONS for name in one.face]
LINES = [line for one in OPERATIONS for line in one.cli]

each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
each_face = pytest.mark.parametrize(
    ("operation", "method"), FACES, ids=[method for _, method in FACES]
)


def words(line: str, task_id: str = "a") -> list[str]:
    """The arguments of a line of the table, for a task's id."""
    return [word.format(id=task_id) for word in line.split()]


def keys_of(operation: Operation) -> list[str]:
    """Every key that its script may touch."""
    return list(load()[operation.script].keys)
