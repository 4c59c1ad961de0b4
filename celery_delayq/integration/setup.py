"""What making a ``DelayQ`` changes in its app, all of it.

    DelayQ(app) --> changes --> the configuration is read --> delayq_enabled? --> leaves: configured
                                                                   '-- False --> all is taken back

Making one must not read the configuration: it may not be complete yet. But some changes have to be
made before it is read, such as options of the command line; so they are taken back.
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

FIXUP = "celery_delayq.integration.delayq:DelayQ"
SCANNER_STEP = "celery_delayq.integration.bootstep:ScannerStep"

# Attributes of an app that are given other values, or may be by leaves.
_REPLACED = ("amqp_cls", "control_cls", "task_cls", "AsyncResult")
_WORKER_OPTION = Option(
    ["--no-delayq"],
    is_flag=True,
    default=False,
    help="Do not scan for scheduled tasks in this worker.",
)


def set_up(app: Celery, services: Services) -> None:
    """Let *app* schedule tasks and reach them, and its workers scan; unless it is switched off."""
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
        # Celery makes a copy of an app, which has its fixups before its signals.
        on_init = app.on_init

        def initialized() -> None:
            on_init()
            _when_configured(app, then)

        app.on_init = initialized


def _change(app: Celery, services: Services) -> None:
    app.amqp_cls = scheduling_amqp(app.amqp_cls)
    let_results_know(app)
    # A copy of the app, and one that travels to another process, is made with the same fixups.
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
    # They are made again when they are needed, of the classes that the app has by now.
    for made in ("amqp", "control"):
        vars(app).pop(made, None)


def _is_of_django(app: Celery) -> bool:
    """Whether Celery's Django support is at work."""
    if not works(Feature.DJANGO):
        return False
    from celery.fixups.django import DjangoFixup

    # The app keeps what its fixups made; one that is not at work made nothing.
    return any(isinstance(fixup, DjangoFixup) for fixup in app._fixups or ())
