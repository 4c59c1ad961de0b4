"""Reads waiting tasks by shape, and counts by task and reason those that this code would not run.

    a slice of entries --kind (task, content, route)--> verdicts by shape --faults--> a row's count,
                                                                                 first due, one id
What it keeps depends on the number of kinds and shapes, up to :data:`MOST_SHAPES`, and never on the
number of entries. A shape that is not kept is judged again, so the rows are the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from shlex import quote
from typing import Any

from kombu.utils.json import loads

from ...core.clock import from_ms
from ...core.message.headers import LAUNCH
from ...core.servers.risks import ERROR, WARNING
from ...core.services import HasServices, Services
from ...core.store import QueueCount, label_of
from ...core.store.calls import Shard
from ...core.store.record import LABEL_BYTES, NO_FLAGS, NewRecord, Record
from ...core.store.selection import survey
from ...core.tasks.reading import names_in
from ...operations.queues import answers, listened, queue_counts
from .. import rule_store
from ..rule_store import Stored, Waiting, ms_of, said_of
from .judging import (
    ARGUMENTS,
    CONTENT,
    FINE,
    PLAIN,
    QUEUE,
    RULE,
    TASK,
    UNDECODABLE,
    UNREADABLE,
    UNREGISTERED,
    Fault,
    Faults,
    Judge,
)

MOST_SHAPES = 10_000  # that are kept; and as many kinds
MOST_ROWS = 1000
MORE = "more"  # the reason of the row that counts what has no row of its own
_LONGEST_NAME = 200  # characters of a task's name, or an id, in a row
_ANY_DUE = 10**12  # ms, of 13 digits
_NO_VALUES = b'\nnull\nnull\n""\n""\n""'  # between the lines of a template

_DOCS = "celery_delayq/docs/operate/deploys.md"
_SENTENCES = {
    UNREGISTERED: "this code has no task of this name",
    ARGUMENTS: "its arguments do not fit: {0}",
    CONTENT: "its content type {0} is not in accept_content",
    UNDECODABLE: "its body cannot be decoded: {0}",
    UNREADABLE: "its record cannot be read: {0}",
    QUEUE: "no living worker listens to its queue {0}",
    MORE: "it is of other tasks or for other reasons: only {3:,} rows are told apart",
}
_ALIAS = (
    "keep the old name as an alias for a release, or give these a new one: celery -A proj delayq "
)
_ADVICE = {
    UNREGISTERED: _ALIAS + "edit --task {1} --to-task NEW",
    ARGUMENTS: (
        "give new parameters a default; or pause the task, roll out, then celery -A proj delayq "
        "edit --task {1} --with MODULE:FUNCTION, and resume: see {4}"
    ),
    CONTENT: "keep it in accept_content until these have run",
    UNDECODABLE: "cancel it and schedule it again: no worker of this code can read it",
    UNREADABLE: "let check say what is wrong: celery -A proj delayq check",
    QUEUE: "start a worker with -Q {0}, unless this release brings one",
    MORE: "mend the others first, and run preflight again",
}
# Of a part of something else, and of a rule.
_OF_PARTS = {
    UNREGISTERED: _ALIAS + "edit --all --to-task {1}=NEW",
    ARGUMENTS: "give new parameters a default; or cancel these, and schedule them again",
}
_OF_RULES = {
    UNREGISTERED: "set the rule anew; or celery -A proj delayq rules edit {2} --to-task NEW",
    ARGUMENTS: (
        "set the rule anew; or celery -A proj delayq rules edit {2} --with MODULE:FUNCTION"
    ),
    UNREADABLE: "install the release that wrote it: celery -A proj delayq rules list says more",
}
_PASSING = (
    "nothing, if it is not due before a worker of this code starts: that sets the rule anew, or "
    "removes it"
)


@dataclass(frozen=True)
class Misfit:
    """The calls of one task that this code would not run for one reason.

    Attributes:
        task: The task's name; empty if it is not known.
        reason: ``unregistered``; ``arguments``: they do not bind; ``content``: its type is not
            accepted; ``undecodable``; ``unreadable``: its record is; ``queue``: no worker listens
            to it; ``more``: the rest.
        where: ``task``; ``rule``; ``canvas``: a part of one that waits; ``link``: a callback,
            an errback, or the rest of its chain or chord.
        level: ``error``; or ``warning``, which is no problem by itself.
        count: How many waiting tasks, or rules.
        first_due: When the first of them is due; ``None``: not known.
        id: The id of that one; of a rule, its name.
        sentence: What is wrong.
        advice: What to do.
    """

    task: str
    reason: str
    where: str
    level: str
    count: int
    first_due: datetime | None
    id: str
    sentence: str
    advice: str

    @property
    def is_problem(self) -> bool:
        """Whether it is more than a warning."""
        return self.level == ERROR


@dataclass(frozen=True)
class Preflight:
    """The result of a preflight. It is true if there is no problem.

    Attributes:
        misfits: The problems and warnings, those due first before the others.
        tasks: How many waiting tasks were looked at.
        rules: How many rules were.
        dead: How many dead tasks were left out: they do not run by themselves.
    """

    misfits: tuple[Misfit, ...]
    tasks: int
    rules: int
    dead: int

    def __bool__(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    @property
    def problems(self) -> tuple[Misfit, ...]:
        """The problems, without the warnings."""
        return tuple(misfit for misfit in self.misfits if misfit.is_problem)


def preflight(delayq: HasServices) -> Preflight:
    """The waiting tasks and rules that this process's code would not run; call it before a deploy.

    It imports the app's modules as a worker does, and compares with them each waiting task, with
    its links, each part of a waiting canvas, and each rule: is the task registered, do its
    arguments bind, may and can its body be decoded? It decodes nothing that ``accept_content`` does
    not list. It writes nothing: what :meth:`every` says during the import is only noted. If workers
    answer, it warns of queues that none of them reads; a later one may.

    Its memory does not grow with the number of tasks. A task that is scheduled meanwhile may be
    left out; one may be counted twice if Redis resizes its hash meanwhile.

    Returns:
        An object that is true if there is no problem; with ``misfits``, one for each task and
        reason, ``problems``, and the numbers of ``tasks``, ``rules`` and ``dead`` tasks.

    Raises:
        kombu.exceptions.OperationalError: Redis cannot be reached.
    """
    services = delayq.services
    services.entries.check_membership()
    token = rule_store.ONLY_NOTED.set(True)
    try:
        services.app.loader.import_default_modules()
        services.app.finalize(auto=True)
    finally:
        rule_store.ONLY_NOTED.reset(token)
    return _Flight(services).looked()


_Key = tuple[str, str, str, str]  # of a row: task, reason, where, level


@dataclass
class _Kind:
    """What many entries have in common: a template and a route.

    Attributes:
        task: The task's name.
        decode: Decodes a body; or it may not, as *faults* say.
        faults: What is wrong with each of them.
        verdicts: What is wrong with those of a shape: the number of arguments, and other names.
    """

    task: str
    decode: Callable[[Any], Any]
    faults: Faults = FINE
    is_judged: bool = True
    verdicts: dict[tuple[Any, ...], Faults] = field(default_factory=dict)


@dataclass
class _Tally:
    why: str
    count: int = 0
    first: tuple[float, str] = (math.inf, "")  # due time, ms, and id

    def add(self, due_ms: int | None, task_id: str, why: str) -> None:
        self.count += 1
        here = math.inf if due_ms is None else due_ms, task_id
        if self.count == 1 or here < self.first:
            self.first, self.why = here, why


class _Flight:
    """One look at all waiting tasks and rules.

    Args:
        services: The services of the app, whose modules are imported.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._judge = Judge(services.app, MOST_SHAPES, _queues_read(services))
        self._kinds: dict[Any, _Kind] = {}  # by header, queue's label and template's name
        self._shapes = 0
        self._tallies: dict[_Key, _Tally] = {}
        self._passing: set[str] = set()  # ids of runs that go with the code that set their rules
        self._tasks = self._rules = self._dead = 0

    def looked(self) -> Preflight:
        """Look at everything, and return what was found."""
        entries = self._services.entries.now()
        self._look_at_rules()
        for shard in entries.shards:
            self._look_at(shard)
        found = sorted(self._tallies.items(), key=_in_order)
        misfits = tuple(_misfit(*key, tally) for key, tally in found)
        return Preflight(misfits, self._tasks, self._rules, self._dead)

    def _look_at(self, shard: Shard) -> None:
        for slice_ in survey(shard):
            self._dead += slice_.dead
            kinds = [
                self._kinds.get(kind) or self._new_kind(kind, slice_.templates.get(kind.name))
                for kind in slice_.kinds
            ]
            for place, due, task_id, body in slice_.shared:
                self._tasks += 1
                kind = kinds[int(place) - 1]
                faults = self._faults_of(kind, body) if kind.is_judged else kind.faults
                if faults:
                    self._add(faults, int(due), task_id)
            for task_id, text in slice_.whole:
                self._look_at_whole(task_id, Record.found(text), slice_.templates)
            for task_id, _, why in slice_.unreadable:
                self._tasks += 1
                self._add(frozenset([Fault("", UNREADABLE, TASK, _text(why))]), None, task_id)

    def _faults_of(self, kind: _Kind, body: bytes) -> Faults:
        """Return what is wrong with an entry that shares a template; *body* is JSON."""
        try:
            is_plain = body[:1] == b'"' and b"\\" not in body
            payload = kind.decode(body[1:-1].decode() if is_plain else loads(body))
            args, kwargs, embed = payload
            is_usual = type(args) is list and type(kwargs) is dict and embed == PLAIN
            shape = (len(args), *kwargs) if is_usual else None
        except Exception as error:  # each serializer has its own
            return kind.faults | self._judge.undecodable(kind.task, TASK, error)
        if shape is None or kind.task == LAUNCH:
            return kind.faults | self._judge.payload(kind.task, payload)
        found = kind.verdicts.get(shape)
        if found is None:
            found = kind.faults | self._judge.payload(kind.task, payload)
            self._keep(kind, shape, found)
        return found

    def _keep(self, kind: _Kind, shape: tuple[Any, ...], found: Faults) -> None:
        self._shapes += 1
        if self._shapes > MOST_SHAPES:
            for each in self._kinds.values():
                each.verdicts.clear()
            self._shapes = 0
        if self._judge.may_keep(shape[1:]):
            kind.verdicts[shape] = found

    def _new_kind(self, key: Any, template: bytes | None) -> _Kind:
        if len(self._kinds) >= MOST_SHAPES:
            self._kinds.clear()
        labels = NO_FLAGS + bytes(2 * LABEL_BYTES)
        shared = NewRecord(key.header, labels, b"T" + key.name + _NO_VALUES, template or b"")
        try:
            envelope = loads(shared.message("", _ANY_DUE))
            task = str(envelope["headers"]["task"])
            decode, faults = self._judge.decoder(envelope, task)
        except Exception as error:
            faults = frozenset([Fault("", UNREADABLE, TASK, str(error))])
            kind = _Kind("", str, faults, is_judged=False)
        else:
            is_refused = bool(faults)
            faults |= self._unread(task, key.queue, key.header)
            kind = _Kind(task, decode, faults, is_judged=not is_refused)
        self._kinds[key] = kind
        return kind

    def _look_at_whole(
        self, task_id: bytes, record: Record, templates: Mapping[bytes, bytes]
    ) -> None:
        self._tasks += 1
        try:
            message = record.message(task_id, templates.get(record.name or b""))
        except ValueError as error:
            faults = frozenset([Fault("", UNREADABLE, TASK, str(error))])
        else:
            faults = self._judge.message(message)
            if self._judge.read is not None:
                header, (_, queue) = record.text[: record.header_end], record.labels
                faults |= self._unread(_task_in(message), queue, header)
        self._add(faults, record.due_ms, task_id)

    def _unread(self, task: str, label: bytes, header: bytes) -> Faults:
        """Return the fault of a queue that no living worker reads, if their queues are known."""
        if self._judge.read is None or label in self._judge.read:
            return FINE
        place = header.partition(b":")[2].decode(errors="replace")
        tally = QueueCount(label, 0, 0, header[1:2].decode(), place)
        names = names_in(tally, self._services.broker.options)
        own = next((name for name in names if label_of(name) == label), names[0])
        return frozenset([Fault(task, QUEUE, TASK, own)])

    def _look_at_rules(self) -> None:
        entries = self._services.entries
        for some, _ in rule_store.slices(entries):
            rules = [rule for rule in some if not (rule.is_removed or rule.is_beats)]
            self._rules += len(rules)
            runs = rule_store.runs_of(entries, [(rule, ()) for rule in rules])
            for rule, (waiting, _) in zip(rules, runs, strict=True):
                self._look_at_rule(rule, waiting)

    def _look_at_rule(self, rule: Stored, waiting: Sequence[Waiting]) -> None:
        due_ms = min((ms_of(run.due) for run in waiting), default=None)
        try:
            signature, passes = rule.signature, self._passes(rule)
        except Exception as error:  # another program, or a later release, wrote it
            fault = Fault("", UNREADABLE, RULE, str(error))
            self._add(frozenset([fault]), due_ms, rule.name.encode())
            return
        if passes:
            self._passing.update(run.id for run in waiting)
        if (row := said_of(self._services).rows.get(rule.name)) is not None:
            # This takes its place.
            signature, passes = rule_store.signature_in(row["plan"]), False
        faults = self._judge.signature(signature)
        self._add(faults, due_ms, rule.name.encode(), passes=passes)

    def _passes(self, rule: Stored) -> bool:
        row = said_of(self._services).rows.get(rule.name)
        if row is not None:
            return row["digest"] != rule.digest
        app = self._services.app
        if not rule.is_declared or rule.row.get("app") != str(app.main or ""):
            return False
        entry = app.conf.beat_schedule.get(rule.name) if rule.source == "beat" else None
        return entry is None or entry.get("task") != rule.signature["task"]

    def _add(
        self, faults: Faults, due_ms: int | None, task_id: bytes, *, passes: bool = False
    ) -> None:
        if not faults:
            return
        named = _text(task_id)
        passes = passes or named in self._passing
        rows: dict[_Key, str] = {}  # each once, however many parts it has
        for fault in sorted(faults):
            level = WARNING if passes or fault.reason == QUEUE else ERROR
            key: _Key = (fault.task[:_LONGEST_NAME], fault.reason, fault.where, level)
            if key not in self._tallies and len(self._tallies) >= MOST_ROWS:
                key = ("", MORE, TASK, level)
            rows.setdefault(key, fault.why)
        for key, why in rows.items():
            self._tallies.setdefault(key, _Tally(why)).add(due_ms, named[:_LONGEST_NAME], why)


def _queues_read(services: Services) -> set[bytes] | None:
    """Return the labels of the queues that living workers read; ``None`` if these are not known."""
    # Without a scanner no worker of this store is alive, so none is waited for.
    heard = answers(services, "active_queues") if services.entries.scanners() else {}
    if not heard:
        return None
    queues, _ = queue_counts(services, services.entries.pauses())
    names, workers = listened(services, heard, queues)
    return {label_of(name) for name in names} if workers else None


def _task_in(message: bytes) -> str:
    try:
        return str(json.loads(message)["headers"].get("task", ""))
    except (ValueError, KeyError, AttributeError, TypeError):
        return ""


def _in_order(item: tuple[_Key, _Tally]) -> tuple[Any, ...]:
    (task, reason, where, level), tally = item
    return reason == MORE, level != ERROR, tally.first[0], task, reason, where


def _misfit(task: str, reason: str, where: str, level: str, tally: _Tally) -> Misfit:
    due_ms, task_id = tally.first
    words = tally.why, task, task_id, MOST_ROWS, _DOCS
    sentence = _SENTENCES[reason].format(*words)
    special = {RULE: _OF_RULES, TASK: _ADVICE}.get(where, _OF_PARTS)
    advice = special.get(reason, _ADVICE[reason])
    if level == WARNING and reason != QUEUE:
        advice = _PASSING
    due = None if due_ms == math.inf else from_ms(int(due_ms))
    # Its commands are for a shell, and a rule's name may have spaces.
    quoted = [quote(word) if isinstance(word, str) else word for word in words]
    return Misfit(
        task, reason, where, level, tally.count, due, task_id, sentence, advice.format(*quoted)
    )


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
