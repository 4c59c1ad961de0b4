"""A worker's remote commands ``delayq`` and ``delayq_clock``.

Loading this file makes them known, as Celery has it. A worker loads it, and Celery's command line
by way of ``cli``; other processes do not, as it takes half of a worker's modules along.
"""

from __future__ import annotations

import time
from typing import Any

from celery.worker.control import inspect_command

from ..errors import DelayQError
from ..operations.status import status
from .registry import services_of


@inspect_command()
def delayq(state: Any, **_: Any) -> dict[str, Any]:
    """Show what waits in the store, what is paused, and how many scanners are alive."""
    try:
        return status(services_of(state.app), queues=False).facts()
    except DelayQError as error:
        return {"error": str(error)}  # Celery would print a traceback


@inspect_command()
def delayq_clock(state: Any, **_: Any) -> dict[str, float]:  # noqa: ARG001 - Celery gives it
    """Show what time it is by a worker's clock, for `celery delayq doctor`."""
    return {"now": time.time()}
