"""Finds the app under test."""

from __future__ import annotations

from typing import Any

from celery.app import app_or_default
from celery.app.utils import find_app

from ...core.errors import CannotIsolate
from ...core.services import find

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
