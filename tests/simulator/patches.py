"""What belongs to the world while it runs: clocks, pauses, chance, and what nobody expected."""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from celery_delayq import clock
from celery_delayq.handover import backoff, scanner
from celery_delayq.integration.adopting import batches
from tests.simulator.server import START_US
from tests.simulator.world import World, current


@contextmanager
def owned(world: World, judge: Any) -> Iterator[None]:
    """The package's clocks, sleeps and random bytes, as far as an actor asks for them."""
    start = clock.from_ms(START_US // 1000)
    dice = SimpleNamespace(uniform=_uniform)
    own = [
        (clock, "monotonic", _monotonic),
        (clock, "utc_now", lambda: start + timedelta(microseconds=world.now_us)),
        (os, "urandom", _urandom),
        (clock, "sleep", _sleep),
        (scanner, "random", dice),
        (backoff, "random", dice),
        # A scanner or a worker goes on after whatever it did not expect, and says so.
        (scanner.logger, "exception", judge.failed),
        (batches.logger, "exception", judge.failed),
    ]
    with ExitStack() as stack:
        for owner, name, ours in own:
            stack.enter_context(patch.object(owner, name, ours))
        # Of thousands of histories nobody reads what was logged.
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable()
        yield


_real_monotonic, _real_urandom, _real_sleep = clock.monotonic, os.urandom, clock.sleep


def _monotonic() -> float:
    actor = current()
    if actor is None:
        return _real_monotonic()
    now = actor.monotonic()
    actor.may_fall_asleep("stopped")
    return now


def _urandom(count: int) -> bytes:
    actor = current()
    return _real_urandom(count) if actor is None else actor.dice.randbytes(count)


def _uniform(low: float, high: float) -> float:
    return current().dice.uniform(low, high)


def _sleep(seconds: float) -> None:
    actor = current()
    _real_sleep(seconds) if actor is None else actor.sleep(seconds)
