"""``schedule_many``: one task for many arguments, a slice at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Union

from celery.canvas import Signature
from celery.exceptions import NotRegistered, QueueNotFound, SoftTimeLimitExceeded
from celery.result import EagerResult
from kombu.exceptions import OperationalError, SerializerNotInstalled

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
from ..core.message.body import is_canvas
from ..core.scheduling import writing
from ..core.scheduling.intercept import Request
from ..core.scheduling.options import NAMES, EntryOptions, entry_options_of, options_of_entry
from ..core.scheduling.writing import new_id, write
from ..core.services import Services
from ..core.store import NewEntry, Receipt, checked_id, id_text
from ..core.text import logger_of
from .items import Item, item_of
from .patches import touched
from .prepared import Preparation
from .times import Spread, own_time, times_for

logger = logger_of(__name__)

SLICE = 200  # entries per call of Redis
SLICE_BYTES = 500_000

# For an item: its entry, the entry that was kept instead, the id of a task that ran, or an error.
ItemOutcome = Union[NewEntry, Receipt, str, Exception]

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
    services: Services,
    signature: Signature,
    items: Iterable[tuple[Any, ...]],
    *,
    at: TimeInput | Sequence[TimeInput] | None = None,
    after: DelayInput | Sequence[DelayInput] | None = None,
    spread: Spread | None = None,
    progress: Callable[[Bulk], object] | None = None,
) -> Bulk:
    """Schedule one task for many arguments; see :meth:`DelayQ.schedule_many`."""
    if is_canvas(signature):
        raise NotATask("signature", signature, "a plain task; schedule takes a canvas")
    if signature.options.get("task_id"):
        raise InvalidOption("task_id", signature.options["task_id"], "an id in each item")
    if not services.app.conf.task_always_eager:
        services.check()  # a wrong setting is no item's fault
    times = times_for(items, services.timezone, at=at, after=after, spread=spread)
    return BulkWriter(services, signature, progress).load(items, times)


class BulkWriter:
    """Takes items one by one and stores them slice by slice."""

    def __init__(
        self, services: Services, signature: Signature, progress: Callable[[Bulk], object] | None
    ) -> None:
        self.bulk = Bulk()
        self._services = services
        self._signature = signature
        self._task = _task_of(signature)
        self._progress = progress
        self._preparation: Preparation | None = None
        self._slice: list[ItemOutcome] = []
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

    def _outcome(self, item: Any, when: When | None) -> ItemOutcome:
        """Return an item's entry, the id of a task that ran or existed, or the error."""
        try:
            return self._new(*self._read(item, when))
        except (OperationalError, StoreError, StoreForbidden, SoftTimeLimitExceeded, NotScheduled):
            raise  # not the item's fault; and one task that was sent at once is enough
        except Exception as error:
            return _bare(error)

    def _add(self, outcome: ItemOutcome) -> None:
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
            answers = write(self._services, new, self._policy, given_out=self._has_own_ids)
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
            self._preparation = Preparation(self._services.app)

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
        item = item_of(given)
        if item.time is not None:
            when = own_time(item.time, self._services.timezone)
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
