"""A scheduled task as one reads it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from celery import Celery
from kombu.utils.json import loads

from ..clock import from_ms
from ..errors import UnreadableRecord
from ..message.body import body_of
from ..store import Entry, State


@dataclass(frozen=True)
class ScheduledTask:
    """One entry of the store."""

    id: str
    task: str
    queue: str
    due: datetime
    created: datetime
    state: State
    reason: str = ""
    _envelope: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _app: Celery | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, entry: Entry, app: Celery) -> ScheduledTask:
        """Read an entry.

        Raises:
            UnreadableRecord: its message is not one of Celery's.
        """
        try:
            envelope = loads(entry.message)
            headers, properties = envelope["headers"], envelope["properties"]
            made = cls(
                id=entry.task_id,
                task=headers.get("task", ""),
                queue=properties["delivery_info"]["routing_key"],
                due=from_ms(entry.due_ms),
                created=from_ms(entry.created_ms),
                state=entry.state,
                reason=entry.reason,
                _envelope=envelope,
                _app=app,
            )
        except Exception as error:  # of whatever kind: kombu's decoder turns values into types
            raise UnreadableRecord(entry.task_id, repr(error)) from error
        # Protocol 1 keeps the task's name with its arguments.
        return made if made.task else replace(made, task=made._call.get("task", ""))

    @property
    def args(self) -> tuple[Any, ...] | None:
        """The positional arguments.

        ``None`` when their serializer is not among the app's ``accept_content``: reading a list
        must not unpickle what the app would refuse to run.
        """
        args = self._call.get("args")
        return None if args is None else tuple(args)

    @property
    def kwargs(self) -> dict[str, Any] | None:
        """The keyword arguments; ``None`` as for :attr:`args`."""
        return self._call.get("kwargs")

    @cached_property
    def _call(self) -> dict[str, Any]:
        body = body_of(self._envelope, self._app and self._app.conf.accept_content)
        if isinstance(body, dict):
            return body
        return dict(zip(("args", "kwargs"), body or (), strict=False))
