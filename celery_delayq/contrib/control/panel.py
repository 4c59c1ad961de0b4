"""A worker's remote command ``delayq``.

Importing this module registers the command with Celery. Workers import it, and Celery's command
line does through ``cli``. Other processes do not, as it imports half of a worker's modules.
"""

from __future__ import annotations

from typing import Any

from celery.worker.control import inspect_command

from ... import __version__
from ...core.errors import DelayQError
from ...core.services import services_of
from ...operations.status import status


@inspect_command()
def delayq(state: Any, **_: Any) -> dict[str, Any]:
    """Show how many tasks wait in the store, the pauses, and how many scanners are alive."""
    try:
        services_of(state.app)  # raises an error with a sentence if there are none
        return {**status(state.app.delayq, queues=False).facts(), "version": __version__}
    except DelayQError as error:
        return {"error": str(error)}  # Celery would print a traceback
