"""``delayq.reconcile``: the tasks of a tag, page by page, against the rows of a query.

    row --read--> Wanted --+
                           +--judge--> agrees | missing | differs | left alone, and why
    its key --> Keyed -----+              |         |         |
                                          |    schedule_missing  change, if unchanged since read

Nothing is done twice and nothing undone: what is missing is written only if neither a task nor a
tombstone came under its key meanwhile; a change and a cancel name the revision that was read; and
what was scheduled or changed after the rows were read is left to the next time.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from itertools import islice
from secrets import token_hex
from types import MappingProxyType
from typing import Any, NamedTuple

from celery.app.task import Task
from celery.canvas import Signature
from celery.exceptions import SoftTimeLimitExceeded
from kombu.utils.json import loads

from ...core import clock
from ...core.clock import TimeInput, When, from_ms
from ...core.errors import (
    DelayQError,
    InvalidOption,
    StoreError,
    StoreForbidden,
    UnreadableRecord,
)
from ...core.hooks import part_of
from ...core.leaves import LEAVES, leaf
from ...core.message.body import as_received, body_of, encoded_as, signature_of
from ...core.message.headers import warn_of_expiry
from ...core.message.outgoing import dumps
from ...core.services import HasServices, Services, services_of
from ...core.store import Change, Keyed, Outcome, checked_name, label_of, target_of_key
from ...core.store.changes import AnyChange, Move, Removal, Rewrite
from ...core.store.selection import Match, peek
from ...core.tasks.reading import Picks
from ...core.tasks.selection import Selection
from ...core.text import lasting, logger_of
from ...core.threads import awaited
from ...operations.bulk import Item, schedule_missing
from ...operations.edits import KEPT, Draft, Edit, edited
from . import report as kinds
from .report import LEFT, Case, Reconciled

logger = logger_of(__name__)

PAGE = 1000  # rows
_NO_ROW_S_FAULT = (StoreError, StoreForbidden, SoftTimeLimitExceeded)
_HALF = 0  # in place of a revision
_PART, _LEAST = 10, 10  # a tenth of the tasks under the tag, and at least so many
_TWICE = 2

_ROW = "(key, due), (key, due, args) or (key, due, args, kwargs)"
_TASK = "a task of this app, or the name of one that it has registered"
_MOST = "a whole number of tasks from 0, or math.inf"
_TWO_ROWS = "a key that no row before has"
_NO_ROWS = "there were no rows"
_UNKNOWN_KEYS = "a row has no key, so its task is not known"
# The states in which a task is left alone, in the words of scripts.
_STAY = {
    "DEAD": kinds.DEAD,
    "UNREADABLE": kinds.UNREADABLE,
    "IN_FLIGHT": kinds.IN_FLIGHT,
    "LAPSED": kinds.IN_FLIGHT,
}
_FORGETS = (
    "delayq_remember is {}, less than twice the {} of the rule {}: a task that was delivered or "
    "cancelled may be forgotten by the next run, and be scheduled again; set it higher"
)


@dataclass(frozen=True)
class _Wanted:
    """A row, checked."""

    place: int
    key: str
    when: When
    args: Any
    kwargs: Any


class _Verdict(NamedTuple):
    """What a row's task is like.

    Attributes:
        kind: The kind of case.
        why: What differs, or why it stays.
        edit: What an edit has to change.
        is_moved: Whether it has another due time.
    """

    kind: str
    why: str = ""
    edit: Mapping[str, Any] = MappingProxyType({})
    is_moved: bool = False


class _Keys:
    """The keys of the rows, eight bytes each: a hash, in sorted parts."""

    def __init__(self) -> None:
        self._parts = [array("Q") for _ in range(4096)]

    def add(self, key: str) -> bool:
        """Add a key; return whether it is new."""
        part, at, digest = self._find(key)
        is_new = at == len(part) or part[at] != digest
        if is_new:
            part.insert(at, digest)
        return is_new

    def __contains__(self, key: str) -> bool:
        part, at, digest = self._find(key)
        return at < len(part) and part[at] == digest

    def _find(self, key: str) -> tuple[array[int], int, int]:
        digest = int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")
        part = self._parts[digest >> 52]
        return part, bisect_left(part, digest), digest


class _Arguments:
    """Compares arguments of rows with those of waiting messages."""

    def __init__(self, services: Services) -> None:
        self._app = services.app
        self._encoders: dict[bytes, Callable[[Any, Any], bytes]] = {}

    def agree(self, found: Keyed, args: Any, kwargs: Any) -> bool:
        """Return whether an entry's message has these arguments.

        Raises:
            UnreadableRecord: they cannot be read, or may not.
        """
        name, body = found.record.name, found.record.shared_body()
        encode = self._encoders.get(name) if name else None
        if encode and encode(args, kwargs) == body:
            return True
        entry = found.entry
        try:
            draft = Draft(entry.message, found.record, self._app)
        except Exception as error:  # an invalid message fails in many ways
            raise UnreadableRecord(entry.task_id, repr(error)) from error
        if not draft.is_readable:
            raise UnreadableRecord(entry.task_id, "its arguments cannot be read")
        if name and name not in self._encoders:
            self._encoders[name] = self._encoder(entry.message)
        theirs = [[*draft.arguments[0]], {**draft.arguments[1]}]
        if theirs == [[*args], {**kwargs}]:
            return True
        return bool(theirs == as_received([[*args], {**kwargs}], draft.serializer))

    def _encoder(self, message: bytes) -> Callable[[Any, Any], bytes]:
        """Return the function that encodes arguments as a message has them, to compare bytes."""
        envelope = loads(message)
        body = body_of(envelope, self._app.conf.accept_content)
        if not isinstance(body, (list, tuple)):
            return lambda _args, _kwargs: b"\n"  # no message has it

        def encode(args: Any, kwargs: Any) -> bytes:
            _, _, data = encoded_as(envelope, (args, kwargs, *body[2:]))
            return bytes(dumps(data).encode())

        return encode


class _WithoutRow(Selection):
    """The waiting tasks of a tag that no row stands for."""

    def found(self, keys: _Keys, since_us: int, report: Reconciled) -> Iterator[tuple[Match, Case]]:
        """Yield those that may be cancelled; report of the others."""
        for _, shard, page in self._pages():
            for met in peek(shard, self._chosen, page, reads=True):
                key = "" if met.record is None else met.record.extras.key
                if key and key in keys:
                    continue
                case = Case(key, "no row has its key", id=met.task_id)
                kind = _why_it_stays(met, key, since_us)
                if kind:
                    report.add(kind, case)
                else:
                    yield met, case


def _why_it_stays(met: Match, key: str, since_us: int) -> str:
    """Return why a task without a row is not to be cancelled; or empty."""
    if met.record is None:
        return kinds.UNREADABLE
    if not key:
        return kinds.NO_KEY
    if met.record.changed_us > since_us:
        return kinds.RECENT
    return _STAY.get(met.state) or kinds.IN_FLIGHT * met.record.is_released


@dataclass(frozen=True)
class _Request:
    """What the caller asks for.

    Attributes:
        signature: The task.
        tag: The tag.
        remove: Whether to cancel tasks without a row.
        dry_run: Whether to change nothing.
        late: Whether to take rows that are past due.
        since_us: What was changed after that is left alone.
    """

    signature: Signature
    tag: str
    remove: bool
    dry_run: bool
    late: bool
    since_us: int


class _Run:
    """One reconcile."""

    def __init__(
        self, services: Services, asked: _Request, report: Reconciled, selection: _WithoutRow
    ) -> None:
        self.report = report
        self._services, self._asked, self._selection = services, asked, selection
        self._task: Any = services.app.tasks[asked.signature["task"]]
        self._label = label_of(asked.signature["task"])
        self._arguments = _Arguments(services)
        self._keys = _Keys()
        self._zone = services.timezone
        self._left = report.most
        self._bulk = report.bulk or token_hex(6)

    def go(self, rows: Iterable[Any], progress: Callable[[Reconciled], object] | None) -> None:
        """Take the rows page by page, and at their end the tasks without one."""
        iterator = iter(rows)
        while page := [*islice(iterator, PAGE)]:
            self._take(page)
            self.report.rows += len(page)
            if progress is not None:
                progress(self.report)
        self.report.is_complete = True
        if not self._asked.remove:
            return
        if not self.report.rows:
            self.report.kept = _NO_ROWS
        if self.report.kept:
            logger.warning(
                "no task under tag %s was cancelled: %s", self._asked.tag, self.report.kept
            )
            return
        for met, case in self._selection.found(self._keys, self._asked.since_us, self.report):
            self._cancel(met, case)

    def _take(self, page: Sequence[Any]) -> None:
        wanted = [*self._read(page)]
        missing = list[_Wanted]()
        for row, found in zip(
            wanted, self._services.entries.keyed([row.key for row in wanted]), strict=True
        ):
            try:
                verdict = self._judge(row, found)
                if verdict.kind == kinds.SCHEDULED:
                    missing.append(row)
                    continue
                if verdict.kind in (kinds.CHANGED, kinds.TAGGED):
                    verdict = self._change(verdict, row, found)
                kind, why, *_ = verdict
            except _NO_ROW_S_FAULT:
                raise
            except UnreadableRecord as error:
                kind, why = kinds.UNREADABLE, error.why
            except Exception as error:
                self._refuse(row.place, row.key, error)
                continue
            self.report.add(kind, Case(row.key, why, row.place, found.task_id))
        self._schedule(missing)

    # Rows.

    def _read(self, page: Sequence[Any]) -> Iterator[_Wanted]:
        for place, row in enumerate(page, self.report.rows):
            key = ""
            try:
                fields = _fields_of(row)
                key = checked_name("key", fields[0])
                wanted = self._wanted(place, key, *fields[1:])
            except _NO_ROW_S_FAULT:
                raise
            except Exception as error:
                self._refuse(place, key, error)
                # Its task is no task without a row.
                if key:
                    self._keys.add(key)
                else:
                    self.report.kept = _UNKNOWN_KEYS
                continue
            if self._keys.add(key):
                yield wanted
            else:
                self._refuse(place, key, InvalidOption("key", key, _TWO_ROWS))

    def _wanted(
        self, place: int, key: str, due: Any, args: Any = (), kwargs: Any = None
    ) -> _Wanted:
        """Return a row with a time, and with arguments that fit the task, as they are sent.

        Raises:
            InvalidDueTime: its time is none.
            InvalidOption: its arguments are no list, or no mapping.
            TypeError: they do not fit.
        """
        when = clock.at(due, self._zone)
        kwargs = {} if kwargs is None else kwargs
        if not isinstance(args, (list, tuple)):
            raise InvalidOption("args", args, "a list or a tuple")
        if not isinstance(kwargs, Mapping):
            raise InvalidOption("kwargs", kwargs, "a mapping")
        fits = getattr(self._task, "__header__", None)
        if fits is not None and self._task.typing:
            fits(*args, **kwargs)
        return _Wanted(place, key, when, args, kwargs)

    def _sent(self, row: _Wanted) -> tuple[Any, Any]:
        """Return a row's arguments as ``apply_async`` sends them."""
        dump = getattr(self._task, "_dump_pydantic_arguments", None)
        if dump is None or self._task.serializer == "pickle":
            return row.args, row.kwargs
        sent: tuple[Any, Any] = dump(row.args, row.kwargs)
        return sent

    def _refuse(self, place: int, key: str, error: Exception) -> None:
        bare = error.with_traceback(None)
        self.report.add(kinds.REFUSED, Case(key, str(error), place, error=bare))

    # What becomes of them.

    def _judge(self, row: _Wanted, found: Keyed) -> _Verdict:
        is_past = row.when.ms <= found.now_ms and not self._asked.late
        if not found.task_id:
            if found.word == "none":
                return _Verdict(kinds.PAST_DUE if is_past else kinds.SCHEDULED)
            return _Verdict(LEFT[found.word])
        verdict = self._left_alone(found) or self._compare(row, found)
        if verdict.edit or verdict.is_moved:
            if is_past and verdict.is_moved:
                return verdict._replace(kind=kinds.PAST_DUE)
            if found.record.changed_us > self._asked.since_us:
                return verdict._replace(kind=kinds.RECENT)
        return verdict

    def _left_alone(self, found: Keyed) -> _Verdict | None:
        if found.record.task_label != self._label:
            return _Verdict(kinds.OTHER_TASK, "a task of another name has this key")
        if kind := _STAY.get(found.word) or kinds.IN_FLIGHT * found.record.is_released:
            return _Verdict(kind, found.facts.error)
        return _Verdict(kinds.HELD) if found.facts.behind else None

    def _compare(self, row: _Wanted, found: Keyed) -> _Verdict:
        record, edit, differs = found.record, dict[str, Any](), list[str]()
        # A time in the past is now, whichever it is.
        is_moved = record.due_ms != row.when.ms and max(record.due_ms, row.when.ms) > found.now_ms
        if is_moved:
            differs.append(f"due {_shown(record.due_ms)}, not {_shown(row.when.ms)}")
        args, kwargs = self._sent(row)
        if not self._arguments.agree(found, args, kwargs):
            edit |= {"args": args, "kwargs": kwargs}
            differs.append("other arguments")
        if self._asked.tag not in record.extras.tags:
            edit["add_tags"] = [self._asked.tag]
        if not differs and not edit:
            return _Verdict(kinds.UNCHANGED)
        kind = kinds.CHANGED if differs else kinds.TAGGED
        return _Verdict(kind, "; ".join(differs) or "without the tag", edit, is_moved)

    def _schedule(self, missing: Sequence[_Wanted]) -> None:
        """Schedule rows without a task, unless one has come or gone under their key meanwhile."""
        if self._asked.dry_run or not missing:
            for row in missing:
                self.report.add(kinds.SCHEDULED, Case(row.key, "", row.place))
            return
        items = (
            Item(row.args, row.kwargs, row.when.given, key=row.key, conflict="keep")
            for row in missing
        )
        try:
            bulk = schedule_missing(self._services, self._asked.signature, items)
        except Exception as error:
            self._note_scheduled(missing, getattr(error, "so_far", None))
            raise
        self._note_scheduled(missing, bulk)

    def _note_scheduled(self, missing: Sequence[_Wanted], bulk: Any) -> None:
        ids = [] if bulk is None else bulk.ids
        for at, (row, task_id) in enumerate(zip(missing, ids, strict=False)):
            case = Case(row.key, "", row.place, task_id or "")
            if at in bulk.refused:
                self._refuse(row.place, row.key, bulk.refused[at])
            elif at in bulk.existed:
                self.report.add(kinds.RECENT, case._replace(why="scheduled meanwhile"))
            else:
                self.report.add(kinds.SCHEDULED, case)

    def _change(self, verdict: _Verdict, row: _Wanted, found: Keyed) -> _Verdict:
        """Edit and move a task, if it is as it was read; return what was done."""
        if verdict.kind == kinds.CHANGED and not self._may():
            return verdict._replace(kind=kinds.BEYOND)
        if self._asked.dry_run:
            return verdict
        revision: int | None = found.record.changed_us
        if verdict.edit:
            revision = self._edit(verdict, row, found)
        if revision and verdict.is_moved:
            revision = self._move(row, revision) or (_HALF if verdict.edit else None)
        if revision == _HALF:
            return _Verdict(kinds.RECENT, "edited, and not moved: it changed meanwhile")
        return verdict if revision else verdict._replace(kind=kinds.RECENT)

    def _may(self) -> bool:
        """Whether one more may be changed or cancelled."""
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def _edit(self, verdict: _Verdict, row: _Wanted, found: Keyed) -> int | None:
        """Edit a task; return its revision then.

        ``None``: another process changed it before; ``_HALF``: it did so after the edit.
        """
        services, before = self._services, found.record
        made = edited(services, found.entry, _edit_of(verdict.edit))
        if made is None or self._step(row.key, Rewrite(before, made.record)) is None:
            return None
        services.hooks.edited(found.task_id)
        warn_of_expiry([(found.task_id, before.due_ms, made.expires)])
        if not verdict.is_moved:
            return before.changed_us
        # The store does not tell the revision of the edit; another change may have come since.
        (now,) = services.entries.keyed([row.key])
        is_same = now.task_id == found.task_id and now.record.due_ms == before.due_ms
        if is_same and self._arguments.agree(now, *self._sent(row)):
            return now.record.changed_us
        return _HALF

    def _move(self, row: _Wanted, revision: int) -> int | None:
        """Move a task; ``None``: another process changed it meanwhile."""
        undo = self._services.settings.undo
        change = self._step(row.key, Move(row.when, undo=undo, revision=revision))
        if change is None or change.due_ms is None:
            return None
        self._services.hooks.rescheduled(change.task_id, change.due_ms)
        warn_of_expiry([(change.task_id, change.due_ms, change.expires)])
        return revision

    def _cancel(self, met: Match, case: Case) -> None:
        """Cancel a task without a row, if it is as it was read."""
        if not self._may():
            self.report.add(kinds.BEYOND, case)
            return
        if self._asked.dry_run or met.record is None:
            self.report.add(kinds.CANCELLED, case)
            return
        services = self._services
        what = Removal(
            "scanner" if services.has_backend else "none",
            tells=bool(services.hooks.hears_messages()),
            undo=services.settings.undo,
            revision=met.record.changed_us,
        )
        change = self._step(case.key, what)
        if change is not None and change.cancelled is not None:
            services.hooks.cancelled([change.cancelled])
        self.report.add(kinds.RECENT if change is None else kinds.CANCELLED, case)

    def _step(self, key: str, what: AnyChange) -> Change | None:
        """Change the task of a key; ``None``: it is not as it was read."""
        with part_of(self._bulk):
            outcome, change = self._services.entries.change(target_of_key(key), what)
        return change if outcome in (Outcome.DONE, Outcome.UNCERTAIN) else None


def _shown(ms: int) -> str:
    return f"{from_ms(ms):%Y-%m-%d %H:%M:%S} UTC"


def _edit_of(edit: Mapping[str, Any]) -> Edit:
    return Edit(edit.get("args", KEPT), edit.get("kwargs", KEPT), add_tags=edit.get("add_tags", ()))


def _fields_of(row: Any) -> tuple[Any, ...]:
    """Return a row's fields, two to four.

    Raises:
        InvalidOption: it has others.
    """
    try:
        fields = () if isinstance(row, (str, bytes, Mapping)) else tuple(row)
    except TypeError:
        fields = ()
    if not 2 <= len(fields) <= 4:  # noqa: PLR2004 - see _ROW
        raise InvalidOption("row", row, _ROW)
    return fields


def reconcile(
    delayq: HasServices,
    task: Task[..., Any] | str,
    rows: Iterable[Sequence[Any]],
    *,
    tag: str,
    remove: bool = False,
    dry_run: bool = True,
    late: bool = False,
    most: float | None = None,
    since: TimeInput | None = None,
    progress: Callable[[Reconciled], object] | None = None,
) -> Reconciled:
    """Make the waiting tasks of a tag agree with the rows of a query.

    For each row, by its key: a missing task is scheduled, with the tag; one with another due time
    or other arguments is changed, and its id stays. Left alone, and counted by why, is a row whose
    task is being published, is dead, or left within ``delayq_remember``, however it left; whose key
    is held, or has a task of another name; or that is past due. So is a task that was scheduled or
    changed after *since*.

    The report's ``first`` has ten cases of each kind. ``health`` and metrics tell what the last run
    for each tag found, dry or not.

    Args:
        task: The task, or its name.
        rows: ``(key, due, args, kwargs)`` of each task that should wait, in any order: an iterator
            of any length, read a thousand at a time. A due time is one as for :meth:`schedule`; the
            last two can be left out.
        tag: The tag of these tasks. No task of another kind should have it.
        remove: Cancel the tasks under the tag that no row has the key of, once all rows were read;
            none if there are no rows.
        dry_run: Change nothing; ``False``: do it.
        late: Also schedule, or move, rows that are past due; their tasks are delivered at once.
        most: How many tasks to change and cancel at most, however many are missing; then it only
            counts them. By default a tenth of the tasks under the tag, and at least ten.
        since: When the rows were read, if that was before the call.
        progress: Called after each thousand rows with the report so far.

    Returns:
        The report: ``counts`` by kind, ``first``, ``drift``, ``remaining``, ``remembers``, and the
        ``bulk`` that :meth:`undo_all` takes. It is true if the store agrees with the rows now.

    Raises:
        InvalidOption: *task* is not registered, *tag*, *rows* or another option is invalid; or the
            app has ``task_always_eager``. Nothing was written.
        kombu.exceptions.OperationalError: Redis cannot be reached.
        Exception: what *rows* raises. This and every other error has the report so far as its
            ``so_far``; nothing was cancelled.
    """
    services = services_of(delayq.services.app)
    services.check()
    asked, selection = _asked(services, task, tag, since, remove=remove, dry_run=dry_run, late=late)
    report = Reconciled(
        tag=asked.tag,
        dry_run=dry_run,
        remembers=timedelta(seconds=services.settings.remember[0]),
        most=_most(most, services, asked.tag),
        bulk=token_hex(6) if services.settings.undo and not dry_run else "",
    )
    _warn_of_period(services, report)
    try:
        iterator = iter(rows)
    except TypeError:
        raise InvalidOption("rows", rows, f"an iterable of {_ROW}") from None
    run = _Run(services, asked, report, selection)
    try:
        run.go(iterator, progress)
    except BaseException as error:
        with suppress(AttributeError, TypeError):  # an error that takes no attributes
            error.so_far = report  # type: ignore[attr-defined]
        with suppress(DelayQError):
            _note(services, report, error)
        raise
    _note(services, report, None)
    return report


areconcile = awaited(reconcile)


def _asked(
    services: Services, task: Any, tag: Any, since: TimeInput | None, **flags: bool
) -> tuple[_Request, _WithoutRow]:
    """Return the request, checked; and the tasks that the tag has now."""
    if services.app.conf.task_always_eager:
        raise InvalidOption("task_always_eager", True, "false: such tasks run at once")
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InvalidOption(name, value, "true or false")
    signature = _signature(services, task)
    tag = checked_name("tag", tag)
    selection = _WithoutRow(services, Picks(tag=tag, task=signature["task"]))
    now_ms = services.entries.counts().now_ms
    since_ms = now_ms if since is None else clock.at(since, services.timezone).ms
    signature = signature.clone()
    signature.set(delayq_tags=[tag])
    return _Request(signature, tag, since_us=since_ms * 1000 + 999, **flags), selection


def _signature(services: Services, task: Any) -> Signature:
    """Return a task as a signature that the app sends.

    Raises:
        InvalidOption: it is no task of the app.
    """
    if isinstance(task, str):
        if task not in services.app.tasks:
            services.import_tasks()
        task = services.app.tasks.get(task, task)
    if not isinstance(task, Task):
        raise InvalidOption("task", task, _TASK)
    signature = signature_of(task, services.app)
    if signature["task"] not in services.app.tasks:
        raise InvalidOption("task", signature["task"], _TASK)
    return signature


def _most(most: Any, services: Services, tag: str) -> float:
    if most is None:
        return max(_LEAST, Selection(services, Picks(tag=tag)).count() // _PART)
    is_whole = isinstance(most, int) and not isinstance(most, bool) and most >= 0
    if not is_whole and most != math.inf:
        raise InvalidOption("most", most, _MOST)
    return float(most) if most == math.inf else int(most)


def _warn_of_period(services: Services, report: Reconciled) -> None:
    """Warn if a rule calls so seldom that the store forgets in between what left it."""
    running = services.app.current_worker_task
    if running is None or running.request.is_eager or "rules" not in LEAVES:
        return
    for name, period in leaf("rules").periods_of(services, running.name):
        if report.remembers < _TWICE * period:
            remembers = lasting(report.remembers.total_seconds())
            text = _FORGETS.format(remembers, lasting(period.total_seconds()), name)
            report.warnings.append(text)
            logger.warning("%s", text)


def _note(services: Services, report: Reconciled, error: BaseException | None) -> None:
    services.entries.note_reconciled(report.tag, report.line(error), kinds.MOST_TAGS)
