"""A worker's remote command ``delayq``.

Loading this file makes it known, as Celery has it. A worker loads it, and Celery's command line
by way of ``cli``; other processes do not, as it takes half of a worker's modules along.
"""

from __future__ import annotations

from typing import Any

from celery.worker.control import inspect_command

from ..errors import DelayQError
from ..operations.status import status
from ..services import services_of


@inspect_command()
def delayq(state: Any, **_: Any) -> dict[str, Any]:
    """Show what waits in the store, what is paused, and how many scanners are alive."""
    try:
        services_of(state.app)  # says so where there is none
        return status(state.app.delayq, queues=False).facts()
    except DelayQError as error:
        return {"error": str(error)}  # Celery would print a traceback
