"""``app.AsyncResult``: Celery's results, which know of what the store holds that it waits.

    .state --> the backend's word --PENDING--> held? --yes--> SCHEDULED, PAUSED, DEAD
                      |                          | no, or the store is away
                      +--- any other ------------+----------> the backend's word

Where there is no backend, the store is asked at once.
"""

from __future__ import annotations

from typing import Any

from celery import Celery, states
from celery.backends.base import DisabledBackend
from celery.result import AsyncResult

from ..errors import DelayQError
from ..logs import logger_of
from ..operations.targets import target_of
from ..services import find
from ..store import State

logger = logger_of(__name__)


def word_of(state: State) -> str:
    """A state as results show it; what is being handed over is scheduled still."""
    return State.SCHEDULED.value if state is State.IN_FLIGHT else state.value


class KnowsScheduled:
    """Stands before the class that an app's results had."""

    id: str
    app: Celery
    backend: Any
    _behind: type

    @property
    def state(self) -> str:
        """The backend's word; ``SCHEDULED``, ``PAUSED`` or ``DEAD`` while the store has it."""
        if isinstance(self.backend, DisabledBackend):
            return self._held() or self.backend_state
        word = self.backend_state
        return word if word != states.PENDING else self._held() or word

    status = state

    @property
    def backend_state(self) -> str:
        """What Celery's result says by itself."""
        word: str = super().state  # type: ignore[misc]
        return word

    def _held(self) -> str:
        services = find(self.app)
        try:
            state = services and services.entries.state(target_of(self.id))
        except DelayQError as error:
            logger.debug("task %s: the store does not tell its state: %s", self.id, error)
            return ""
        return word_of(state) if state else ""

    def __reduce__(self) -> Any:
        made: Any = super().__reduce__()
        # Nobody could import this class; the one behind it has it in front wherever a DelayQ is.
        return (self._behind, *made[1:]) if made[0] is type(self) else made


class _Answers(KnowsScheduled):
    """What is no word of the store's is asked of the backend alone: many results are polled so."""

    def ready(self) -> bool:
        """Whether the task has run."""
        return self.backend_state in self.backend.READY_STATES

    def successful(self) -> bool:
        """Whether it has, and succeeded."""
        return bool(self.backend_state == states.SUCCESS)

    def failed(self) -> bool:
        """Whether it has, and failed."""
        return bool(self.backend_state == states.FAILURE)


def let_results_know(app: Celery) -> None:
    """Let the results that *app* makes know what is held."""
    behind = app.AsyncResult
    # A subclass of Celery may have put a function there.
    if not isinstance(behind, type) or not issubclass(behind, AsyncResult):
        return
    own = ("ready", "successful", "failed")
    is_plain = all(getattr(behind, name) is getattr(AsyncResult, name) for name in own)
    names = {"__module__": behind.__module__, "__doc__": behind.__doc__, "_behind": behind}
    kind = _Answers if is_plain else KnowsScheduled
    app.AsyncResult = type(behind.__name__, (kind, behind), names)
