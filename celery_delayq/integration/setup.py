"""What making a ``DelayQ`` changes in its app, all of it."""

from __future__ import annotations

from celery import Celery
from click import Option

from ..message import canvas
from ..scheduling.intercept import scheduling_amqp
from . import control, listening, putoff, starting
from .held import let_results_know
from .task import combine_with_django, install

FIXUP = "celery_delayq.integration.delayq:DelayQ"
ADOPTING_STEP = "celery_delayq.integration.adopting.worker:AdoptingStep"
GUARDING_STEP = "celery_delayq.integration.guard:GuardingStep"
METRICS_STEP = "celery_delayq.metrics.step:MetricsStep"
SCANNER_STEP = "celery_delayq.integration.bootstep:ScannerStep"


def set_up(app: Celery) -> None:
    """Let *app* schedule tasks and reach them, and its workers scan."""
    app.amqp_cls = scheduling_amqp(app.amqp_cls)
    app.control_cls = control.revoking_control(app.control_cls)
    for made in ("amqp", "control"):
        app.__dict__.pop(made, None)
    let_results_know(app)
    # A copy of the app, and one that travels to another process, is made with the same fixups.
    app.fixups = {*app.fixups, FIXUP}
    app.steps["worker"].update((SCANNER_STEP, METRICS_STEP))
    app.steps["consumer"].update((ADOPTING_STEP, GUARDING_STEP))
    app.user_options["worker"].add(_worker_option())
    canvas.register(app)
    combine_with_django(app)
    install()
    putoff.install()
    putoff.let_all_put_off([*app._tasks.values()])
    listening.listen()
    starting.listen()


def _worker_option() -> Option:
    return Option(
        ["--no-delayq"],
        is_flag=True,
        default=False,
        help="Do not scan for scheduled tasks in this worker.",
    )
