"""The parts of Python that a running world controls: clocks, sleeps, chance and error logs."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any
from unittest.mock import patch

from tests.lab.simulator.driver import real_monotonic, real_sleep, real_urandom, seams
from tests.lab.simulator.world import SECOND, START_US, World, current


@contextmanager
def owned(world: World, judge: Any) -> Iterator[None]:
    """The package's clocks, sleeps and random bytes, as far as an actor asks for them."""
    start = datetime.fromtimestamp(START_US // SECOND, timezone.utc)
    ours = seams(
        monotonic=_monotonic,
        sleep=_sleep,
        utc_now=lambda: start + timedelta(microseconds=world.now_us),
        urandom=_urandom,
        uniform=_uniform,
        failed=judge.failed,
    )
    with ExitStack() as stack:
        for owner, name, our in ours:
            stack.enter_context(patch.object(owner, name, our))
        # The logs of thousands of histories are never read.
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable()
        yield


def _monotonic() -> float:
    actor = current()
    if actor is None:
        return real_monotonic()
    now = actor.monotonic()
    actor.may_fall_asleep("stopped")
    return now


def _urandom(count: int) -> bytes:
    actor = current()
    return real_urandom(count) if actor is None else actor.dice.randbytes(count)


def _uniform(low: float, high: float) -> float:
    return current().dice.uniform(low, high)


def _sleep(seconds: float) -> None:
    actor = current()
    real_sleep(seconds) if actor is None else actor.sleep(seconds)
