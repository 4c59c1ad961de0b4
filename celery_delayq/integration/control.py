"""A worker's remote control, and the app's, reach the store.

``revoke`` and ``terminate`` cancel what waits; ``inspect scheduled`` and ``query_task`` show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.app.control import Control
from celery.utils.imports import symbol_by_name
from kombu.utils.functional import maybe_list

from ..errors import DelayQError, InvalidOption, StoreError
from ..libraries import Feature, works
from ..logs import logger_of
from ..operations.changing import TOLD, cancel, let_it_end
from ..services import Services
from ..store import Outcome
from . import inspecting, stamped
from .registry import find, services_of
from .remembered import now, remembered_here
from .remote import RemoteMixin

logger = logger_of(__name__)

# All workers are told to revoke at the same moment, and the first of them cancels. Not for ever:
# later on, another message may have been sent under the id.
LATELY_MS = 60_000


class RevokingMixin(RemoteMixin):
    """What a ``Control`` class needs to reach what waits; serves ``AsyncResult.revoke`` too."""

    app: Any

    def revoke(self, task_id: Any, *args: Any, **options: Any) -> Any:
        left, told = _cancel(services_of(self.app), task_id)
        # Workers remember what they were told to revoke. So they are not told of what never
        # reached them, and of the rest when that was.
        return super().revoke(left, *args, **told, **options) if left else None  # type: ignore[misc]

    def revoke_by_stamped_headers(self, headers: Any, *args: Any, **options: Any) -> Any:
        """As Celery's; and before that, cancel what waits: it reads all of it, in short steps."""
        told = {TOLD: 0} if stamped.cancel(services_of(self.app), headers) else {}
        return super().revoke_by_stamped_headers(  # type: ignore[misc]
            headers, *args, **told, **options
        )


class RevokingControl(RevokingMixin, Control):
    """Celery's own ``Control`` that reaches what waits."""


def revoking_control(base: Any) -> Any:
    """*base*, the app's Control class, that does; by name where it can be, as apps get pickled."""
    base = symbol_by_name(base)
    if issubclass(base, RevokingMixin):  # of a copied app
        return base
    if base is Control:
        return f"{__name__}:{RevokingControl.__name__}"
    return type(base.__name__, (RevokingMixin, base), {})


Command = Callable[..., Any]


def wrap_panel() -> None:
    """Let those of a worker's commands that are about tasks ask the store as well; wraps once."""
    if not works(Feature.REMOTE_CONTROL):
        return
    # Here, not above: only a worker has these modules loaded already.
    from celery.worker.control import Panel

    from . import panel  # noqa: F401 - which makes its commands known

    for name, wrap in _WRAPS.items():
        plain = Panel.data.get(name)
        if plain is not None and not hasattr(plain, "delayq_wraps"):
            Panel.data[name] = command = wrap(plain)
            command.delayq_wraps = plain


def _cancelling(plain: Command) -> Any:
    def revoke(state: Any, task_id: Any, *args: Any, **options: Any) -> Any:
        services, left = find(state.app), task_id
        told = {name: options.pop(name) for name in (TOLD,) if name in options}
        # Who says when it was has asked the store; by now another task may wait under the id.
        if services and not told:
            left, told = _cancel(services, task_id, lately=True)
        if not left:
            return {"ok": f"tasks {sorted(maybe_list(task_id))} cancelled before they were due"}
        if works(Feature.ADOPTING):
            remembered_here().told(maybe_list(left), told.get(TOLD))
        return plain(state, left, *args, **options)

    return revoke


def _terminating(plain: Command) -> Any:
    def terminate(state: Any, signal: Any, task_id: Any, *args: Any, **options: Any) -> Any:
        def of_the_rest(state: Any, left: Any, *args: Any, **options: Any) -> Any:
            return plain(state, signal, left, *args, **options)

        return _cancelling(of_the_rest)(state, task_id, *args, **options)

    return terminate


def _cancelling_stamped(plain: Command) -> Any:
    def revoke_by_stamped_headers(state: Any, headers: Any, *args: Any, **options: Any) -> Any:
        services, told = find(state.app), options.pop(TOLD, None)
        reply = plain(state, headers, *args, **options)
        # Who was told has asked the store; and a worker has no time to read all of it.
        if services and told is None:
            stamped.cancel_in_background(services, headers)
        return reply

    return revoke_by_stamped_headers


def _listing(plain: Command) -> Any:
    def scheduled(state: Any, *args: Any, **options: Any) -> Any:
        its_own, services = plain(state, *args, **options), find(state.app)
        try:
            stored = inspecting.scheduled(services, state.hostname) if services else []
        except DelayQError as error:
            logger.warning(_NOT_SHOWN, error)
            stored = []
        return [*its_own, *stored]

    return scheduled


def _finding(plain: Command) -> Any:
    def query_task(state: Any, ids: Any, *args: Any, **options: Any) -> Any:
        its_own, services = plain(state, ids, *args, **options), find(state.app)
        others = [one for one in maybe_list(ids) or () if one not in its_own]
        try:
            stored = inspecting.queried(services, others, state.hostname) if services else {}
        except DelayQError as error:
            logger.warning(_NOT_SHOWN, error)
            stored = {}
        return {**its_own, **stored}

    return query_task


# The last of them is the former name of the one before.
_WRAPS = {
    "revoke": _cancelling,
    "terminate": _terminating,
    "revoke_by_stamped_headers": _cancelling_stamped,
    "query_task": _finding,
    "scheduled": _listing,
    "dump_schedule": _listing,
}
_NOT_SHOWN = "what waits in the store is not shown: %s"


Told = dict[str, int]


def _cancel(services: Services, task_id: Any, *, lately: bool = False) -> tuple[Any, Told]:
    """Cancel what waits; returns the id, or the ids, that workers have to be told of, and when.

    With *lately*, none of what somebody else has cancelled a moment ago, either. There is no time
    where the store could not be asked for one of them: it may still wait, and is meant.
    """
    several = isinstance(task_id, (list, tuple, set))
    ids = list(task_id) if several else [task_id]
    asked = [_was_cancelled(services, one, lately) for one in ids]
    left = [one for one, cancelled in zip(ids, asked, strict=True) if not cancelled]
    told_ms = now(services) if left and None not in asked else None
    if told_ms is not None:
        let_it_end()
    told = {} if told_ms is None else {TOLD: told_ms}
    return left if several or not left else task_id, told


def _was_cancelled(services: Services, task_id: str, lately: bool) -> bool | None:
    """Whether workers need not be told of it; ``None`` where the store cannot be asked."""
    try:
        outcome = cancel(services, task_id)
        if outcome is Outcome.NOT_FOUND and lately:
            ago = services.entries.cancelled_ms_ago(task_id)
            return ago is not None and ago < LATELY_MS
        return bool(outcome)
    except InvalidOption:
        return False  # an id that cannot be scheduled; Celery may know it
    except StoreError as error:
        # The workers can still be told, and it may be running.
        logger.warning("task %s: not looked for in the store: %s", task_id, error)
        return None
