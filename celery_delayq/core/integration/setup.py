"""Setup: every change that ``DelayQ(app)`` makes to the app.

    DelayQ(app) --> changes --> Celery reads the configuration --> delayq_enabled? --> configured
                                                                        '-- False --> undo all

``DelayQ(app)`` must not read the configuration, which may not be complete yet. Some changes, such
as command-line options, must be made before it is read; with ``delayq_enabled = False`` they are
undone afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery
from click import Option

from ..leaves import CONFIGURED, DJANGO, HOOKS, SET_UP, call, steps
from ..libraries import Feature, works
from ..scheduling.intercept import scheduling_amqp
from ..services import Services
from . import startup
from .async_result import let_results_know

FIXUP = "celery_delayq:DelayQ"
SCANNER_STEP = "celery_delayq.core.integration.bootstep:ScannerStep"

# App attributes that this package, or one of its leaves, replaces.
_REPLACED = ("amqp_cls", "control_cls", "task_cls", "AsyncResult")
_WORKER_OPTION = Option(
    ["--no-delayq"],
    is_flag=True,
    default=False,
    help="Do not scan for scheduled tasks in this worker.",
)


def set_up(app: Celery, services: Services) -> None:
    """Make *app* schedule and manage tasks, and its workers scan; unless it is switched off."""
    before = {name: vars(app)[name] for name in _REPLACED if name in vars(app)}
    _change(app, services)

    def configured(**_: Any) -> None:
        if app.conf.get("delayq_enabled") is False:
            services.is_off = True
            _take_back(app, before)
        else:
            call(CONFIGURED, app)

    _when_configured(app, configured)


def _when_configured(app: Celery, then: Callable[..., None]) -> None:
    if app.configured:
        then()
    elif app.on_after_configure is not None:
        app.on_after_configure.connect(then, weak=False)
    else:
        # When Celery copies an app, fixups run before the copy has its signals.
        on_init = app.on_init

        def initialized() -> None:
            on_init()
            _when_configured(app, then)

        app.on_init = initialized


def _change(app: Celery, services: Services) -> None:
    app.amqp_cls = scheduling_amqp(app.amqp_cls)
    let_results_know(app)
    # Copies of the app, and apps pickled for another process, are built with the same fixups.
    app.fixups = {*app.fixups, FIXUP}
    for blueprint, step in _steps():
        app.steps[blueprint].add(step)
    app.user_options["worker"].add(_WORKER_OPTION)
    startup.listen()
    for hooks in call(HOOKS, app):
        services.hooks.add(hooks)
    call(SET_UP, app)
    if _is_of_django(app):
        call(DJANGO, app)
    _forget_made(app)


def _take_back(app: Celery, before: dict[str, Any]) -> None:
    for name in _REPLACED:
        vars(app).pop(name, None)
    vars(app).update(before)
    app.fixups.discard(FIXUP)
    for blueprint, step in _steps():
        app.steps[blueprint].discard(step)
    app.user_options["worker"].discard(_WORKER_OPTION)
    _forget_made(app)


def _steps() -> list[tuple[str, str]]:
    return [("worker", SCANNER_STEP), *steps()]


def _forget_made(app: Celery) -> None:
    # The app builds these again on next use, from its current classes.
    for made in ("amqp", "control"):
        vars(app).pop(made, None)


def _is_of_django(app: Celery) -> bool:
    """Return whether Celery's Django support is active."""
    if not works(Feature.DJANGO):
        return False
    from celery.fixups.django import DjangoFixup

    # The app keeps the objects that its fixups return; an inactive fixup returns none.
    return any(isinstance(fixup, DjangoFixup) for fixup in app._fixups or ())
