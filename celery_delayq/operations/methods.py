"""The methods of ``DelayQ`` beside those of the core; a module is imported on its first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from celery.app.task import Task
from celery.canvas import Signature

from ..core.clock import DelayInput, TimeInput
from ..core.integration.apply_async import signature_of
from ..core.integration.methods import TaskMethods
from ..core.services import services_of

if TYPE_CHECKING:
    from . import edits, health, pauses, selection, status
    from .bulk import Bulk, Spread
else:

    class _Later:
        """A module of this folder, imported when a method of it is used."""

        def __init__(self, name: str) -> None:
            self._name = f"{__package__}.{name}"

        def __getattr__(self, name: str) -> _LaterMethod:
            return _LaterMethod(self._name, name)

    class _LaterMethod:
        def __init__(self, module: str, name: str) -> None:
            self._module, self._name = module, name

        def __get__(self, delayq: object, owner: type) -> Any:
            method = getattr(import_module(self._module), self._name)
            setattr(Operations, self._name, method)
            return method.__get__(delayq, owner)

    edits, health, pauses = map(_Later, ("edits", "health", "pauses"))
    selection, status = map(_Later, ("selection", "status"))


class Operations(TaskMethods):
    """The methods of ``DelayQ`` for keys, many tasks, edits, pauses and status."""

    edit = edits.edit
    holder = pauses.holder
    free = pauses.free
    select = selection.select
    aselect = selection.aselect
    status = status.status
    health = health.health
    pause = pauses.pause
    resume = pauses.resume
    pauses = pauses.pauses

    def schedule_many(
        self,
        signature: Signature[Any] | Task[..., Any],
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
        from . import bulk

        services = services_of(self.services.app)
        signature = signature_of(signature, services.app)
        return bulk.schedule_many(
            services, signature, items, at=at, after=after, spread=spread, progress=progress
        )
