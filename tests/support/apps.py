"""A Celery application that leaves no trace when its test is over."""

import contextlib
from collections.abc import Iterator

from celery import Celery, _state
from kombu.transport import memory

from tests.support.shards import SHARDS


@contextlib.contextmanager
def celery_state_kept() -> Iterator[None]:
    """Restore the current app, the shared tasks, and the contents of the memory transport.

    Every app gets all shared tasks, so those of other tests are hidden meanwhile.
    """
    current, default, shared = (
        _state._tls.current_app,
        _state.default_app,
        set(_state._on_app_finalizers),
    )
    others = list(_state._get_active_apps())
    for app in others:
        _state._deregister_app(app)
    try:
        yield
    finally:
        for app in others:
            _state._register_app(app)
        _state._tls.current_app, _state.default_app = current, default
        _state._on_app_finalizers.intersection_update(shared)
        # A worker that was made here has marked this process as running a task.
        _state._set_task_join_will_block(False)
        memory.Channel.queues.clear()
        memory.Transport.global_state.clear()


def let_go_of_results(app: Celery) -> None:
    """Let results that are collected after their Redis has stopped not try to unsubscribe there."""
    consumer = getattr(app.backend, "result_consumer", None)
    if consumer is not None:
        consumer.stop()
        app.backend.remove_pending_result = lambda _: None


def new_app(broker: str | None = None, backend: str | None = None, **conf: object) -> Celery:
    """An app that is current, so that ``shared_task`` finds it; in memory by default."""
    app = Celery("tests", broker=broker or "memory://", backend=backend, set_as_current=True)
    app.conf.update({"delayq_shards": SHARDS, **conf})
    return app
