"""A worker's remote commands ``delayq``, ``delayq_pause``, ``delayq_resume``.

Loading this file makes them known, as Celery has it. A worker loads it, and Celery's command line
by way of ``cli``; other processes do not, as it takes half of a worker's modules along.

All workers are told at once, and each takes the step: the second one finds it done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from celery.utils.serialization import strtobool
from celery.worker.control import control_command, inspect_command

from ..errors import DelayQError, InvalidOption
from ..logs import logger_of
from ..operations import pausing
from ..operations.status import status
from ..services import Services
from ..store import lane_in_words
from .registry import services_of

logger = logger_of(__name__)

Answer = dict[str, Any]
Reader = Callable[[str], Any]

_RUNS = "{} is not paused; if it was, another worker has just resumed it"


@inspect_command()
def delayq(state: Any, **options: Any) -> Answer:
    """Show what waits in the store, what is paused, and how many scanners are alive."""

    def show(services: Services) -> Answer:
        _read({}, (), options)  # it has none
        return status(services, queues=False).facts()

    return _answered(state, show)


@control_command(variadic="words", signature="[queue=QUEUE|task=TASK] [late=true]")
def delayq_pause(state: Any, words: Any = (), **options: Any) -> Answer:
    """Pause a queue, a task, or everything."""

    def pause(services: Services) -> Answer:
        given = _read(_PAUSE, words, options)
        pausing.pause(services, **given)
        return _ok(f"{_lane(given)} is paused")

    return _answered(state, pause)


@control_command(variadic="words", signature="[queue=QUEUE|task=TASK] [rate=TASKS_A_SECOND]")
def delayq_resume(state: Any, words: Any = (), **options: Any) -> Answer:
    """Resume what is paused."""

    def resume(services: Services) -> Answer:
        given = _read(_RESUME, words, options)
        was_paused = pausing.resume(services, **given)
        return (
            _ok(f"{_lane(given)} is resumed") if was_paused else {"ok": _RUNS.format(_lane(given))}
        )

    return _answered(state, resume)


def _answered(state: Any, step: Callable[[Services], Answer]) -> Answer:
    """What a step answers, or its error's sentence; Celery would print a traceback."""
    try:
        return step(services_of(state.app))
    except DelayQError as error:
        return {"error": str(error)}


def _ok(sentence: str) -> Answer:
    """What was done; the worker's log has it, too."""
    logger.info("%s, by remote control", sentence)
    return {"ok": sentence}


def _lane(given: Mapping[str, Any]) -> str:
    return lane_in_words(given.get("queue"), given.get("task"))


def _late(text: str) -> Any:
    try:
        return strtobool(text)
    except TypeError:
        return text  # of which the step says what it should be


def _rate(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


_PAUSE: Mapping[str, Reader] = {"queue": str, "task": str, "late": _late}
_RESUME: Mapping[str, Reader] = {"queue": str, "task": str, "rate": _rate}


def _read(known: Mapping[str, Reader], words: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a command: by name from a program, as ``name=value`` from the command line."""
    given = dict(options)
    for word in words if isinstance(words, (list, tuple)) else [words]:
        name, equals, text = str(word).partition("=")
        given[name if equals else word] = known[name](text) if equals and name in known else text
    for name in given:
        if name not in known:
            wanted = " or ".join(f"{one}=…" for one in known) or "none"
            raise InvalidOption("argument", name, wanted)
    return given
