"""Which apps a test may use: finds the one under test, and refuses the stores of others.

Pytest's option ``delayq_forbid_store`` asks for the latter.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from celery.app import app_or_default
from celery.app.utils import find_app

from ...core.errors import CannotIsolate, StoreForbidden
from ...core.scheduling import intercept
from ...core.scheduling.intercept import Request
from ...core.scheduling.options import PART
from ...core.servers.connection import Connection
from ...core.services import Configured, Services, find
from ...core.store.scripts import Scripts

_REACH = ("scripts", "entries", "copies")  # properties of Configured that lead to a store
_HOW = (
    "name the app under test: set delayq_app = shop:app in pytest's configuration, or override "
    "the fixture delayq_app"
)


def app_of_test(name: str) -> Any:
    """Return the app of that name, as ``celery -A`` takes it; without a name, the current app.

    Raises:
        CannotIsolate: it cannot be found, or has no ``DelayQ``.
    """
    app = _named(name) if name else app_or_default()
    if find(app) is not None:
        return app
    if name:
        raise CannotIsolate(f"the app {name} has no DelayQ; make one with DelayQ(app)")
    raise CannotIsolate(f"the current Celery app, {app.main!r}, has no DelayQ; {_HOW}")


def _named(name: str) -> Any:
    try:
        return find_app(name)
    except (ImportError, AttributeError) as error:
        raise CannotIsolate(f"delayq_app is {name!r}, which cannot be found: {error}") from error


def forbid_stores() -> Callable[[], None]:
    """Let each call that would connect to a store raise ``StoreForbidden``, unless it is isolated.

    Returns:
        A function that permits these calls again.
    """
    stack, connect, request_of = ExitStack(), Services.connect, intercept.request_of

    def asked(services: Services, options: Any, *args: Any) -> Request | None:
        # Here, as Celery then asks the result backend, for twenty seconds if that is away.
        request = request_of(services, options, *args)
        if request is not None or PART in options:
            _ = services.scripts
        return request

    def connected(services: Services) -> Connection:
        _ = services.scripts
        return connect(services)

    for name in _REACH:
        stack.enter_context(patch.object(Configured, name, _of_isolated(vars(Configured)[name])))
    stack.enter_context(patch.object(Services, "connect", connected))
    stack.enter_context(patch.object(intercept, "request_of", asked))
    return stack.close


def _of_isolated(reach: Any) -> property:
    """Return a property like the cached one, which raises for an app that is not isolated."""

    def get(configured: Configured) -> Any:
        # An isolated app has scripts of its own, for its clock.
        if configured.services.scripts_of is Scripts:
            raise StoreForbidden(configured.endpoint.url, configured.settings.prefix)
        return reach.__get__(configured)

    return property(get)
