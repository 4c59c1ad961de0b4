"""``app.AsyncResult``: Celery's result, which also reports ``SCHEDULED``.

    .state --> backend's state --PENDING--> in the store? --yes--> SCHEDULED, PAUSED, DEAD
                    |                             | no, or the store is down
                    +--- any other ---------------+----------> backend's state

Without a backend, it reads the store first.
"""

from __future__ import annotations

from typing import Any

from celery import Celery, states
from celery.backends.base import DisabledBackend
from celery.result import AsyncResult

from ..errors import DelayQError
from ..scheduling.intercept import TextIds
from ..services import find
from ..store import State
from ..tasks.scheduled_task import target_of
from ..text import logger_of

logger = logger_of(__name__)


def word_of(state: State) -> str:
    """Return a state as results show it; a task in flight is still scheduled."""
    return State.SCHEDULED.value if state is State.IN_FLIGHT else state.value


class KnowsScheduled(TextIds):
    """A mixin in front of the app's original result class."""

    id: str
    app: Celery
    backend: Any
    _behind: type

    @property
    def state(self) -> str:
        """The backend's state; ``SCHEDULED``, ``PAUSED`` or ``DEAD`` while in the store."""
        if isinstance(self.backend, DisabledBackend):
            return self._held() or self.backend_state
        word = self.backend_state
        return word if word != states.PENDING else self._held() or word

    status = state

    @property
    def backend_state(self) -> str:
        """The state as Celery's own result reports it."""
        word: str = super().state  # type: ignore[misc]
        return word

    def _held(self) -> str:
        services = find(self.app)
        try:
            state = services and services.entries.state(target_of(self.id))
        except DelayQError as error:
            logger.debug("task %s: its state cannot be read from the store: %s", self.id, error)
            return ""
        return word_of(state) if state else ""

    def __reduce__(self) -> Any:
        made: Any = super().__reduce__()
        # This class cannot be imported. Unpickle as the original class; an app with a DelayQ puts
        # this one in front of it.
        return (self._behind, *made[1:]) if made[0] is type(self) else made


class _Answers(KnowsScheduled):
    """Answers that need only the backend, as programs poll many results this way."""

    def ready(self) -> bool:
        """Whether the task has run."""
        return self.backend_state in self.backend.READY_STATES

    def successful(self) -> bool:
        """Whether the task has run and succeeded."""
        return bool(self.backend_state == states.SUCCESS)

    def failed(self) -> bool:
        """Whether the task has run and failed."""
        return bool(self.backend_state == states.FAILURE)


def let_results_know(app: Celery) -> None:
    """Make the results of *app* report tasks in the store."""
    behind = app.AsyncResult
    # A subclass of Celery may use a function instead of a class.
    if not isinstance(behind, type) or not issubclass(behind, AsyncResult):
        return
    own = ("ready", "successful", "failed")
    is_plain = all(getattr(behind, name) is getattr(AsyncResult, name) for name in own)
    names = {"__module__": behind.__module__, "__doc__": behind.__doc__, "_behind": behind}
    kind = _Answers if is_plain else KnowsScheduled
    app.AsyncResult = type(behind.__name__, (kind, behind), names)
