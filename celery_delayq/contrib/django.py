"""The task base for Django: what Celery's has, and ``delay_until`` and ``delay_for``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery.contrib.django.task import DjangoTask

from ..integration.task import DelayQTask, P, R_co

if TYPE_CHECKING:
    from typing import Generic

    class _DjangoTask(DjangoTask[P, R_co], Generic[P, R_co]): ...

else:
    from types import GenericAlias

    class _DjangoTask(DjangoTask):
        __class_getitem__ = classmethod(GenericAlias)


class DelayQDjangoTask(DelayQTask[P, R_co], _DjangoTask[P, R_co]):
    """:class:`DelayQTask` with ``delay_on_commit`` and ``apply_async_on_commit``.

    ``task_cls=DelayQTask`` becomes this where Celery's Django support is at work; naming it tells
    type checkers as well.
    """
