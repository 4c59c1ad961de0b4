"""The app's side of the remote commands: ``app.control.delayq_pause`` and the like."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from celery.app.task import Task

from ..libraries import Feature, works
from ..operations import pausing


class InspectingMixin:
    """What an ``Inspect`` class needs to ask workers for their store."""

    def delayq(self) -> dict[str, Any] | None:
        """How the store stands, as each worker that answers sees it.

        Returns:
            Of each worker a dictionary, the ``facts()`` of ``DelayQ.status()`` without its
            ``queues``; or ``error``, a sentence. ``None`` if no worker answers.
        """
        return self._request("delayq")  # type: ignore[attr-defined,no-any-return]


class RemoteMixin:
    """What a ``Control`` class needs to let workers pause and resume."""

    @cached_property
    def inspect(self) -> Any:
        plain = super().inspect  # type: ignore[misc]
        if not works(Feature.INSPECTING):
            return plain
        return type(plain.__name__, (InspectingMixin, plain), {})

    def delayq_pause(
        self,
        queue: str | None = None,
        task: str | Task | None = None,
        late: bool = False,
        destination: Any = None,
        **options: Any,
    ) -> Any:
        """Let the workers pause a queue, a task, or everything, as ``DelayQ.pause`` does.

        It is for a process that reaches the broker, and not the store. A worker that is busy does
        it later, as with each of Celery's remote commands.

        Args:
            queue: The queue's name.
            task: A task, or its name.
            late: Whether the pause counts as lateness for tasks with a grace.
            destination: Names of workers, where not all are meant; one of them is enough.
            options: Those of ``broadcast``, such as ``reply=True``.

        Raises:
            InvalidOption: a queue and a task, what is no name, or neither true nor false.
        """
        queue, name = pausing.checked(queue, task)
        pausing.check_late(late)
        return self._tell("delayq_pause", destination, options, queue=queue, task=name, late=late)

    def delayq_resume(
        self,
        queue: str | None = None,
        task: str | Task | None = None,
        rate: float | None = None,
        destination: Any = None,
        **options: Any,
    ) -> Any:
        """Let the workers resume what is paused; the arguments are those of the pause.

        Args:
            queue: The queue's name.
            task: A task, or its name.
            rate: At so many tasks a second what has fallen due comes back; all at once by default.
            destination: Names of workers, where not all are meant; one of them is enough.
            options: Those of ``broadcast``, such as ``reply=True``.

        Raises:
            InvalidOption: a queue and a task, what is no name, or no rate.
        """
        queue, name = pausing.checked(queue, task)
        pausing.check_rate(rate)
        return self._tell("delayq_resume", destination, options, queue=queue, task=name, rate=rate)

    def _tell(self, command: str, destination: Any, options: Any, **arguments: Any) -> Any:
        return self.broadcast(  # type: ignore[attr-defined]
            command, arguments=arguments, destination=destination, **options
        )
