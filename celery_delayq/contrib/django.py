"""Schedules a Django project's tasks when the transaction commits, and not if it rolls back.

    with transaction.atomic():
        order.save()
        order.reminder = remind.delay_for_on_commit(1800, order.pk)     the id, fixed at the call
        order.save()
                                        at the commit: remind.delay_for(1800, order.pk), by that id

Every task with Celery's ``delay_on_commit`` has these two methods. For other operations, or another
database than the default one, use ``transaction.on_commit(partial(delayq.cancel, id))``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from celery.contrib.django.task import DjangoTask
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.utils.decorators import sync_and_async_middleware
from kombu.utils.uuid import uuid

from ..core import clock
from ..core.clock import DelayInput, TimeInput, When
from ..core.hooks import acting_as
from ..core.integration.apply_async import DelayQTask, P, R_co, call
from ..core.scheduling.intercept import Request
from ..core.services import services_of

if TYPE_CHECKING:
    from typing import Generic

    from celery import Celery
    from celery.app.task import Task

    class _DjangoTask(DjangoTask[P, R_co], Generic[P, R_co]): ...

else:
    from types import GenericAlias

    class _DjangoTask(DjangoTask):
        __class_getitem__ = classmethod(GenericAlias)


@sync_and_async_middleware
def acting(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Name a request's user as the author of changes; for ``MIDDLEWARE``, after the authentication.

    The user is looked up only when a task is changed, so other requests cost nothing.
    """
    if iscoroutinefunction(get_response):

        async def middleware(request: Any) -> Any:
            with acting_as(partial(_user_of, request)):
                return await get_response(request)

        return middleware

    def middleware_of_threads(request: Any) -> Any:
        with acting_as(partial(_user_of, request)):
            return get_response(request)

    return middleware_of_threads


def _user_of(request: Any) -> str:
    try:
        return str(request.user.get_username())
    # No authentication; or the user is not known yet, and a coroutine cannot ask the database.
    except (AttributeError, SynchronousOnlyOperation):
        return ""


class DelayQDjangoTask(DelayQTask[P, R_co], _DjangoTask[P, R_co]):
    """:class:`DelayQTask` with Celery's ``delay_on_commit``, and the same for a due time.

    With Celery's Django support, ``task_cls=DelayQTask`` becomes this class; name it yourself so
    that type checkers know. All other tasks with Celery's method have these methods, too.
    """

    def delay_until_on_commit(self, when: TimeInput, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Run this task at *when*, if the transaction commits.

        Django's ``on_commit`` of the default database schedules it: right after the outermost
        transaction commits; never, if that or a savepoint around the call rolls back; at once,
        outside of a transaction. Until then it is not in Redis, and you cannot cancel it.

        *when* is any time that ``delay_until`` takes. If it is past when the transaction commits,
        the task runs at once.

        Returns:
            The id of the task, which you can store in the same transaction; for
            ``delayq.cancel(id)``, ``delayq.get(id)``, ``delayq.result(id)``.

        Raises:
            InvalidDueTime: as ``delay_until``.
            InvalidSetting: a setting of the app is invalid, or there is no Redis to keep tasks in.
            TypeError: the arguments do not fit the task.

        All other errors of ``delay_until``, such as ``kombu.exceptions.OperationalError`` if Redis
        cannot be reached, leave the transaction's block after the commit. Django does not call the
        functions registered after this one then. You can schedule the task again with the same id;
        if it is scheduled already, that raises ``AlreadyScheduled``.
        """
        services = services_of(self.app)
        return _on_commit(self, clock.at(when, services.timezone), args, kwargs)

    def delay_for_on_commit(self, delay: DelayInput, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Run this task *delay* after the transaction commits: a timedelta, or seconds.

        Otherwise the same as ``delay_until_on_commit``.
        """
        return _on_commit(self, clock.after(delay), args, kwargs)


def with_django(app: Celery[Any]) -> None:
    """Add these methods to all tasks that have ``delay_on_commit``.

    Celery's fixup makes its ``DjangoTask`` the tasks' base only if the user named no other.
    """
    if app.task_cls in (DelayQTask, "celery_delayq:DelayQTask", "celery_delayq.DelayQTask"):
        app.task_cls = f"{__name__}:{DelayQDjangoTask.__name__}"
    for name in ("delay_until_on_commit", "delay_for_on_commit"):
        if name not in vars(DjangoTask):
            setattr(DjangoTask, name, vars(DelayQDjangoTask)[name])


def _on_commit(task: Task, when: When, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    services = services_of(task.app)
    # Report errors while there is something to roll back.
    if not services.app.conf.task_always_eager:
        services.check()
    # A task that is a class has no header, and Celery does not check it either.
    if task.typing and (check := getattr(task, "__header__", None)):
        check(*args, **kwargs)
    task_id: str = uuid()
    request = Request(when, frozen=True)
    transaction.on_commit(
        partial(call, services, request, task.apply_async, args, kwargs, task_id=task_id)
    )
    return task_id
