"""Which app has which ``DelayQ``: it hangs on the app itself, as ``app.delayq``.

The modules that Celery calls (AMQP, control, tasks) find an app's services here.
"""

from __future__ import annotations

from typing import Any

from ..errors import NoDelayQ
from ..services import Services

_ATTRIBUTE = "delayq"


def attach(app: Any, delayq: Any) -> None:
    """Let *app* have this ``DelayQ``."""
    setattr(app, _ATTRIBUTE, delayq)


def find(app: Any) -> Services | None:
    """The services of the app's ``DelayQ``, if one was made."""
    delayq = getattr(app, _ATTRIBUTE, None)
    if delayq is None:
        return None
    services: Services = delayq.services
    return services


def services_of(app: Any) -> Services:
    """The services of the app's ``DelayQ``.

    Raises:
        NoDelayQ: none was made.
    """
    found = find(app)
    if found is None:
        raise NoDelayQ(app.main)
    return found
