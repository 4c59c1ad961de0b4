"""``schedule_many``: one task for many arguments, a slice at a time.

First the items, their due times (one for all, one each, an item's own, or spread at random), and
the message: made by Celery for the first two items, and from then on filled in.

    item 1 --Celery--> message --+
                                 +-- agree in all but what an item explains --> prepared message
    item 2 --Celery--> message --+                                                    |
    item 3 .. n ----- id, arguments, body, texts for logs ----------------------------+--> entries

For every item of a bulk, ``apply_async`` computes mostly the same: options, routing, headers, the
record's template. If no function on the way looks at single items (:mod:`.patches`), the other
messages are made from the first one: their own id, arguments and body fill the gaps of the
record's template. Only bulks do this; Celery makes the message of each single call.

The rate of a bulk depends on two functions that replace a library's: the text that ``saferepr``
makes of plain arguments (18 to 40 % of the caller's time), and ``servers.connection.packed`` (10
to 20 %).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from functools import partial
from itertools import repeat
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Union
from uuid import UUID

import celery.app.amqp
from celery.app.task import Task
from celery.canvas import Signature
from celery.exceptions import NotRegistered, QueueNotFound, SoftTimeLimitExceeded
from celery.result import EagerResult
from kombu.exceptions import OperationalError, SerializerNotInstalled

from ..core import clock
from ..core.clock import DelayInput, TimeInput, When
from ..core.errors import (
    AlreadyScheduled,
    CallRejected,
    DelayQError,
    InvalidOption,
    ItemsRefused,
    MessageTooLarge,
    NotATask,
    NotScheduled,
    StoreError,
    StoreForbidden,
)
from ..core.message.body import depth_of, is_canvas, signature_of
from ..core.message.outgoing import LARGE, PLAIN_ID, OutgoingMessage, dumps, record_of
from ..core.scheduling import writing
from ..core.scheduling.intercept import Request
from ..core.scheduling.options import (
    NAMES,
    PREFIX,
    EntryOptions,
    TaskOptions,
    as_options,
    entry_options_of,
    options_of_entry,
)
from ..core.scheduling.writing import Ready, new_id, write
from ..core.services import HasServices, Services, services_of
from ..core.store import NewEntry, Receipt, checked_id, id_text
from ..core.store.record import NewRecord, Template
from ..core.text import logger_of
from .patches import touched

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logger_of(__name__)

_EXPECTED = "(args, kwargs), such as ((1,), {}), or a celery_delayq.Item"
_LEAST = 2  # fields of a plain tuple


class _Fields(NamedTuple):
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    time: Union[TimeInput, timedelta] | None
    task_id: Union[str, UUID] | None
    options: Mapping[str, Any]


class Item(_Fields):
    """One call of a bulk. A plain tuple of the first fields, at least two, works as well.

    Args:
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        time: Its own due time: a timedelta from now, or a time as for ``at``.
        task_id: Its own id: text, or a ``UUID``.
        **options: Its own options, as for ``delayq.schedule``; ``None`` takes the signature's
            value.

    Attributes:
        options: The same, by the names that a call uses, such as ``delayq_key``.
    """

    __slots__ = ()
    __module__ = "celery_delayq"  # as pickles name it

    def __new__(  # noqa: PYI034 - mypy refuses Self in it
        cls,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] = MappingProxyType({}),
        time: Union[TimeInput, timedelta] | None = None,
        task_id: Union[str, UUID] | None = None,
        **options: Unpack[TaskOptions],
    ) -> Item:
        return super().__new__(cls, args, kwargs, time, task_id, as_options(options))

    def __reduce__(self) -> tuple[Any, ...]:
        options = {name.removeprefix(PREFIX): value for name, value in self.options.items()}
        return partial(type(self), **options), (
            self.args,
            dict(self.kwargs),
            self.time,
            self.task_id,
        )


def _item_of(given: Any) -> Item:
    """Return an item, from an item or a tuple.

    Raises:
        InvalidOption: it is neither.
    """
    try:
        fields = tuple(given)
        item = given if isinstance(given, Item) else Item(*fields)
    except TypeError:
        raise InvalidOption("item", given, _EXPECTED) from None
    # One field might be the arguments themselves.
    is_whole = len(fields) >= _LEAST and isinstance(item.args, (list, tuple))
    if not is_whole or not isinstance(item.kwargs, Mapping):
        raise InvalidOption("item", given, _EXPECTED)
    return item


_SPREAD = "two times, or two timedeltas, the earlier one first"

Spread = tuple[Union[TimeInput, timedelta], Union[TimeInput, timedelta]]


def times_for(
    items: Any,
    zone: tzinfo,
    *,
    at: TimeInput | Sequence[TimeInput] | None = None,
    after: DelayInput | Sequence[DelayInput] | None = None,
    spread: Spread | None = None,
) -> Iterator[When | None]:
    """Return a time for each item.

    Raises:
        InvalidOption: more than one of them is given; there is not one time for each item; the
            spread is invalid.
        InvalidDueTime: a value is no time.
    """
    given = {"at": at, "after": after, "spread": spread}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) > 1:
        raise InvalidOption("time", given, "at most one of at, after, spread")
    if spread is not None:
        return _spread(spread, zone)
    for name, value in given.items():
        if isinstance(value, (list, tuple)):
            return iter(_each(name, value, items, zone))
        return repeat(_time(name, value, zone))
    return repeat(None)


def _each(name: str, values: Sequence[Any], items: Any, zone: tzinfo) -> list[When | None]:
    if not isinstance(items, Sized):
        raise InvalidOption(
            f"len({name})", len(values), "items that can be counted, a time for each"
        )
    if len(items) != len(values):
        raise InvalidOption(f"len({name})", len(values), f"{len(items)}, a time for each item")
    return [_time(name, value, zone) for value in values]


def _time(name: str, value: Any, zone: tzinfo) -> When:
    return clock.at(value, zone) if name == "at" else clock.after(value)


def _own_time(value: Any, zone: tzinfo) -> When:
    """Return the time of an item; a timedelta counts from now."""
    return clock.after(value) if isinstance(value, timedelta) else clock.at(value, zone)


def _spread(spread: Any, zone: tzinfo) -> Iterator[When | None]:
    try:
        earliest, latest = spread
    except (TypeError, ValueError):
        raise InvalidOption("spread", spread, _SPREAD) from None
    first, last = _own_time(earliest, zone), _own_time(latest, zone)
    if first.mode != last.mode or first.ms > last.ms:
        raise InvalidOption("spread", spread, _SPREAD)
    # Python's own generator continues with the same numbers in all processes that were forked in C.
    chance, count = Random().random, last.ms - first.ms + 1
    drawn = (first.ms + int(chance() * count) for _ in repeat(None))
    return (When(first.mode, ms, spread, first.rounded_us) for ms in drawn)


_SIMPLE = {bool, int, float, type(None)}


@dataclass(frozen=True)
class _Prepared:
    """The common parts of a bulk's messages, and the functions that make the others."""

    header: bytes
    labels: bytes
    template: Template
    fixed: tuple[str, str, str]
    headers: str
    embed: Any
    encode: Callable[[Any], str]
    describe: tuple[Callable[[Any], str], Callable[[Any], str]]

    @classmethod
    def of(cls, app: Any, message: OutgoingMessage, header: bytes) -> _Prepared | None:
        """Return the prepared form of a message; ``None`` if it shares no template."""
        lines, differing = message.shareable()
        if not lines:
            return None
        root, parent, expires, _, kwargs, _ = differing
        return cls(
            header,
            message.labels,
            Template.of(lines),
            (root, parent, expires),
            kwargs.removeprefix(dumps(message.headers["kwargsrepr"])),
            message.payload[2],
            message.encode,
            _describers(app),
        )

    def explains(self, ready: Ready) -> bool:
        """Whether filling in a message's arguments gives that message, byte for byte."""
        made = ready.message
        args, kwargs, _ = made.payload
        shared = record_of(made.message, ready.header, made.labels, share=True)
        return self.new_record(args, kwargs) == shared

    def new(self, task: Any, args: Any, kwargs: Any, when: When, task_id: str) -> NewEntry | None:
        """Return an entry for these arguments; ``None`` if Celery must make it.

        Raises:
            TypeError: the arguments do not fit *task* (``None`` if only its name is known).
            kombu.exceptions.EncodeError: as :meth:`new_record`.
        """
        if not PLAIN_ID.fullmatch(task_id):
            return None
        # A task that is a class without a function has none.
        fits = getattr(task, "__header__", None)
        if fits is not None and task.typing:
            fits(*args, **kwargs)
        record = self.new_record(args, kwargs)
        return NewEntry(task_id, when, record) if record else None

    def new_record(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewRecord | None:
        """Return the record for these arguments; ``None`` if it should not share a template.

        Raises:
            kombu.exceptions.EncodeError: the serializer cannot take the arguments.
        """
        body = self.encode((args, kwargs, self.embed))
        if len(body) > LARGE:
            return None
        of_args, of_kwargs = self.describe
        shown = dumps(of_kwargs(kwargs) if kwargs else "{}") + self.headers
        differing = (*self.fixed, dumps(of_args(args)), shown, dumps(body))
        return self.template.new_record(self.header, self.labels, differing)


class _Preparation:
    """Reads a bulk's first messages, and prepares one as soon as two of them agree."""

    def __init__(self, app: Any) -> None:
        self.message: _Prepared | None = None
        self._app = app
        self._first: tuple[Ready, _Prepared] | None = None
        self._failed = False

    def learn(self, ready: Ready) -> None:
        """Take in one more message that Celery made."""
        if self.message or self._failed:
            return
        made = _Prepared.of(self._app, ready.message, ready.header)
        if made is None:
            return  # large, or unusual; another one may do
        if self._first is None:
            self._first = (ready, made)
            return
        first, message = self._first
        # If both had the same id, its place in the message would stay unknown.
        agree = first.new.task_id != ready.new.task_id and first.policy == ready.policy
        if agree and message.explains(first) and message.explains(ready):
            self.message = message
        else:
            self._failed = True


def _describers(app: Any) -> tuple[Callable[[Any], str], Callable[[Any], str]]:
    deep, amqp = depth_of(app), app.amqp
    return (
        partial(_described, maxlen=amqp.argsrepr_maxsize, **deep),
        partial(_described, maxlen=amqp.kwargsrepr_maxsize, **deep),
    )


def _described(values: Any, maxlen: int, **deep: int) -> str:
    """Return saferepr's text of arguments; by repr if that is the same, and saves a fifth."""
    if type(values) is tuple and all(map(_is_simple, values)):
        text = repr(values)
        if len(text) < maxlen // 2:
            return text
    described: str = celery.app.amqp.saferepr(values, maxlen=maxlen, **deep)
    return described


def _is_simple(value: Any) -> bool:
    if type(value) is not str:
        return type(value) in _SIMPLE
    # saferepr leaves a backslash alone, and knows one kind of quotation mark.
    return value.isprintable() and "'" not in value and "\\" not in value


SLICE = 200  # entries per call of Redis
SLICE_BYTES = 500_000

# For an item: its entry, the entry that was kept instead, the id of a task that ran, or an error.
_ItemOutcome = Union[NewEntry, Receipt, str, Exception]

# Options of an item; an error in any other option is the call's.
_BROUGHT = {"task_id", *NAMES}


class Bulk:
    """The result of a bulk, item by item, in their order.

    Attributes:
        ids: Task ids; ``None`` for an item that was refused.
        existed: Places of items that were not scheduled, as an earlier task was kept, or the
            task's own ``apply_async`` returned an earlier call's result. Their ids are the earlier
            task's.
        refused: Place of an item -> the error that kept it from being scheduled.
        replicas: How many replicas of the store's Redis have all of it, as far as
            ``delayq_wait_replicas`` waited: the fewest of all slices. ``None``: it did not wait.
    """

    def __init__(self) -> None:
        self.ids: list[str | None] = []
        self.existed: set[int] = set()
        self.refused: dict[int, Exception] = {}
        self.replicas: int | None = None

    @property
    def scheduled(self) -> int:
        """The number of scheduled items."""
        return len(self.ids) - len(self.refused) - len(self.existed)

    def raise_for_refused(self) -> None:
        """Raise if an item was refused.

        Raises:
            ItemsRefused: some items were; its ``so_far`` is this bulk.
        """
        if self.refused:
            place, why = next(iter(self.refused.items()))
            error = ItemsRefused(len(self.refused), len(self.ids), place, str(why))
            error.so_far = self
            raise error from why

    def __bool__(self) -> bool:
        """Return whether no item was refused."""
        return not self.refused

    def __repr__(self) -> str:
        existed = f", {len(self.existed)} existed" if self.existed else ""
        return f"<Bulk: {self.scheduled} scheduled{existed}, {len(self.refused)} refused>"


def schedule_many(
    delayq: HasServices,
    signature: Signature | Task[..., Any],
    items: Iterable[tuple[Any, ...]],
    *,
    at: TimeInput | Sequence[TimeInput] | None = None,
    after: DelayInput | Sequence[DelayInput] | None = None,
    spread: Spread | None = None,
    progress: Callable[[Bulk], object] | None = None,
) -> Bulk:
    """Schedule one task with many sets of arguments, much faster than one by one.

    It is one call with one trace: all messages carry the same tracing headers. If the sending
    of messages is patched or overridden, or a handler listens to ``before_task_publish``,
    Celery builds each message, at the speed of single calls.

    Args:
        signature: A task, or a signature with options for all items; not a canvas.
        items: Any iterable of ``(args, kwargs)``, consumed in slices of 200. A
            ``celery_delayq.Item`` can also have its own time, task id, and other options of
            :meth:`schedule`. Put options for all items in the signature.
        at: One time for all items, as for :meth:`schedule`; or a list with one per item.
        after: The same, from now. It counts from when an item's slice reaches Redis.
        spread: Two times, or two timedeltas from now: each item gets a random time between
            them, inclusive.
        progress: Called after each slice with the ``Bulk`` so far.

    Returns:
        The ids in the order of the items, and the refused items with the reasons. An item that
        is invalid, or that the task's own ``apply_async`` rejects, does not affect the others.
        ``existed`` has the positions for which an earlier task was kept, with that task's id.
        It is true if no item was refused; otherwise ``raise_for_refused()`` raises. (With
        ``task_always_eager`` each task has run.)

    Raises:
        InvalidOption: the times are missing or do not match the items; the signature is a
            canvas, is of a task that only another app has, or has a task id or an invalid
            option. Nothing was written.
        InvalidDueTime: *at*, *after* or *spread* is not a valid time. Nothing was written.
        kombu.exceptions.OperationalError: Redis cannot be reached. Tasks stored before stay,
            and are in the error's ``so_far``.
        NotScheduled: the task's ``apply_async`` drops options, so one task was sent at once.
    """
    services = services_of(delayq.services.app)
    signature = signature_of(signature, services.app)
    if is_canvas(signature):
        raise NotATask("signature", signature, "a plain task; schedule takes a canvas")
    if signature.options.get("task_id"):
        raise InvalidOption("task_id", signature.options["task_id"], "an id in each item")
    if not services.app.conf.task_always_eager:
        services.check()  # a wrong setting is no item's fault
    times = times_for(items, services.timezone, at=at, after=after, spread=spread)
    return _Writer(services, signature, progress).load(items, times)


def schedule_missing(
    services: Services, signature: Signature, items: Iterable[tuple[Any, ...]]
) -> Bulk:
    """Schedule items with keys, as far as neither a task nor a tombstone is under these.

    Args:
        services: The app's.
        signature: As for :func:`schedule_many`, without a task id.
        items: Of these, each with its own time.

    Returns:
        As :func:`schedule_many`; ``existed`` also has items whose key's task has left, without an
        id.

    Raises:
        kombu.exceptions.OperationalError: as :func:`schedule_many`.
    """
    return _Writer(services, signature, None, unless_left=True).load(items, repeat(None))


class _Writer:
    """Takes items one by one and stores them slice by slice."""

    def __init__(
        self,
        services: Services,
        signature: Signature,
        progress: Callable[[Bulk], object] | None,
        *,
        unless_left: bool = False,
    ) -> None:
        self.bulk = Bulk()
        self._services = services
        self._signature = signature
        self._task = _task_of(signature)
        self._progress = progress
        self._unless_left = unless_left
        self._preparation: _Preparation | None = None
        self._slice: list[_ItemOutcome] = []
        self._bytes = 0
        self._largest = 0
        self._policy: Mapping[str, Any] = {}
        self._options = options_of_entry(signature.options)
        self._terms = entry_options_of(self._options, self._task)
        self._has_own_ids = False
        self._own_ids: set[str] = set()  # that items of the slice bring

    def load(self, items: Iterable[tuple[Any, ...]], times: Iterator[When | None]) -> Bulk:
        """Schedule all items; *times* has one for each, ``None`` if the item brings its own."""
        self._look_around()
        try:
            # zip must exhaust `items` first, or it swallows one of `times`.
            for item, when in zip(items, times, strict=False):
                self._add(self._outcome(item, when))
            self._flush()
            self._refuse_the_call()
        except BaseException as error:  # KeyboardInterrupt and time limits among them
            with suppress(AttributeError, TypeError):  # an error that takes no attributes
                error.so_far = self.bulk  # type: ignore[attr-defined]
            raise
        self._warn()
        return self.bulk

    def _refuse_the_call(self) -> None:
        """Raise the call's own error if it is why nothing was scheduled."""
        refused = self.bulk.refused
        if (
            refused
            and len(refused) == len(self.bulk.ids)
            and all(map(_is_call_s, refused.values()))
        ):
            raise refused[0]

    def _warn(self) -> None:
        if self.bulk.refused:
            place, error = next(iter(self.bulk.refused.items()))
            logger.warning(
                "%d of %d items of a bulk of %s were refused; the first is number %d, with %s",
                len(self.bulk.refused),
                len(self.bulk.ids),
                self._signature.get("task"),
                place,
                type(error).__name__,  # its text may have the item's arguments
            )

    def _outcome(self, item: Any, when: When | None) -> _ItemOutcome:
        """Return an item's entry, the id of a task that ran or existed, or the error."""
        try:
            return self._new(*self._read(item, when))
        except (OperationalError, StoreError, StoreForbidden, SoftTimeLimitExceeded, NotScheduled):
            raise  # not the item's fault; and one task that was sent at once is enough
        except Exception as error:
            return _bare(error)

    def _add(self, outcome: _ItemOutcome) -> None:
        size = len(outcome.record.body) if isinstance(outcome, NewEntry) else 0
        if self._bytes + size > SLICE_BYTES:
            self._flush()
        self._slice.append(outcome)
        self._bytes += size
        if len(self._slice) == SLICE:
            self._flush()

    def _flush(self) -> None:
        if not self._slice:
            return
        new = [outcome for outcome in self._slice if isinstance(outcome, NewEntry)]
        answers = iter(self._write(new) if new else ())
        outcomes: list[Receipt | str | Exception] = [
            next(answers) if isinstance(one, NewEntry) else one for one in self._slice
        ]
        self._slice, self._bytes = [], 0
        self._note(outcomes)
        if self._progress:
            self._progress(self.bulk)
        self._look_around()

    def _write(self, new: list[NewEntry]) -> list[Receipt | DelayQError]:
        # A caller knows the ids that its items bring.
        had = self._forget([entry.task_id for entry in new if entry.task_id in self._own_ids])
        try:
            answers = write(
                self._services,
                new,
                self._policy,
                given_out=self._has_own_ids,
                unless_left=self._unless_left,
            )
        except StoreError as error:
            # Of several shards, one may have taken its part.
            if had and self._services.settings.shards == 1 and not error.may_have_run:
                writing.remember(self._services, had)
            raise
        self._own_ids.clear()
        if had:
            refused = {answer.task_id for answer in answers if isinstance(answer, AlreadyScheduled)}
            writing.remember(
                self._services, {task_id: had[task_id] for task_id in had.keys() & refused}
            )
        return answers

    def _forget(self, ids: list[str]) -> writing.Past:
        default = getattr(self._task, "ignore_result", False)
        ignores = self._signature.options.get("ignore_result", default)
        return writing.forget(self._services, ids) if ids and not ignores else {}

    def _look_around(self) -> None:
        """Check, before each slice, whether its messages may be made from others."""
        touching = touched(self._services.app, self._task, self._signature)
        if touching:
            if self._preparation or not self.bulk.ids:
                logger.debug("a bulk goes through Celery item by item, because of %s", touching)
            self._preparation = None
        elif self._preparation is None:
            self._preparation = _Preparation(self._services.app)

    def _note(self, outcomes: list[Receipt | str | Exception]) -> None:
        first = len(self.bulk.ids)
        refused = {
            place: outcome
            for place, outcome in enumerate(outcomes, first)
            if isinstance(outcome, Exception)
        }
        existed = {
            place
            for place, outcome in enumerate(outcomes, first)
            if isinstance(outcome, Receipt) and outcome.existed
        }
        numbers = (outcome.replicas for outcome in outcomes if isinstance(outcome, Receipt))
        reached = [number for number in (*numbers, self.bulk.replicas) if number is not None]
        # In one go, so that an interruption finds all of a slice, or nothing.
        self.bulk.refused.update(refused)
        self.bulk.existed |= existed
        self.bulk.replicas = min(reached, default=None)
        self.bulk.ids += map(_id_of, outcomes)

    def _read(self, given: Any, when: When | None) -> tuple[Item, When, str]:
        item = _item_of(given)
        if item.time is not None:
            when = _own_time(item.time, self._services.timezone)
        if when is None:
            raise InvalidOption("time", None, "at, after or spread; or a time in each item")
        if item.task_id is None:
            return item, when, new_id(self._services, self._terms_of(item).extras.key)
        self._has_own_ids = True
        task_id = checked_id(id_text(item.task_id))
        self._own_ids.add(task_id)
        return item, when, task_id

    def _new(self, item: Item, when: When, task_id: str) -> NewEntry | Receipt | str:
        return self._filled_in(item, when, task_id) or self._by_celery(item, when, task_id)

    def _filled_in(self, item: Item, when: When, task_id: str) -> NewEntry | None:
        message = self._preparation and self._preparation.message
        if not message:
            return None
        args, kwargs = _merged(self._signature, item.args, item.kwargs)
        new = message.new(self._task, args, kwargs, when, task_id)
        if new and new.record.size > self._largest:
            raise MessageTooLarge(task_id, new.record.size, self._largest)
        return new and self._terms_of(item).of(new)

    def _terms_of(self, item: Item) -> EntryOptions:
        own = item.options
        return entry_options_of({**self._options, **own}, self._task) if own else self._terms

    def _by_celery(self, item: Item, when: When, task_id: str) -> NewEntry | Receipt | str:
        request = Request(when, writes=False)
        options = {"task_id": task_id, "add_to_parent": False, **item.options}
        apply_async = self._signature.apply_async
        result = request.sent_by(apply_async, item.args, item.kwargs, **options)
        ready = request.answer.ready
        if ready is None:
            return self._not_made(result, request)
        self._policy = ready.policy
        if self._preparation:
            self._preparation.learn(ready)
            self._largest = self._services.settings.max_message
        return ready.new

    def _not_made(self, result: Any, request: Request) -> Receipt | str:
        """Return the outcome of an item for which ``apply_async`` made no entry."""
        has_run = isinstance(result, EagerResult) or self._services.app.conf.task_always_eager
        if not has_run:
            request.refuse_sent(result)
        known: str | None = getattr(result, "id", None)
        if known is None:
            raise CallRejected(str(self._signature.get("task")))
        # A bulk does not report when the earlier call's task is due.
        return known if has_run else Receipt(known, 0, existed=True)


def _id_of(outcome: Receipt | str | Exception) -> str | None:
    if isinstance(outcome, Receipt):
        return outcome.task_id
    return outcome if isinstance(outcome, str) else None


def _is_call_s(error: Exception) -> bool:
    """Return whether each item would meet this error: a missing time, an option for all."""
    if isinstance(error, InvalidOption):
        return error.name not in _BROUGHT
    return isinstance(error, (QueueNotFound, SerializerNotInstalled))


def _bare(error: Exception) -> Exception:
    """Return the error without tracebacks, whose frames would keep objects alive."""
    link: BaseException | None = error
    while link is not None and link.__traceback__:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


def _merged(signature: Signature, args: Any, kwargs: Any) -> tuple[Any, Any]:
    # As Signature.apply_async merges them, and the message has them.
    if signature.immutable:
        args = kwargs = None
    args = (*args, *signature.args) if args else signature.args
    kwargs = dict(signature.kwargs, **kwargs) if kwargs else signature.kwargs
    return args or (), kwargs or {}


def _task_of(signature: Signature) -> Any:
    try:
        return signature.type
    except NotRegistered:
        return None
