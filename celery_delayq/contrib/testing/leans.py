"""The undocumented names of Celery and kombu that a test's isolation relies on.

They are checked when an app is isolated; no process in production needs them.
"""

from __future__ import annotations

LEANS_ON = (
    "celery._state:_set_task_join_will_block",
    "celery._state:_tls",
    "celery._state:default_app",
    "celery.app.amqp:AMQP._producer_pool",
    "celery.app.amqp:Queues._consume_from",
    "celery.app.base:Celery._local",
    "celery.app.base:Celery._pool",
    "celery.app.log:Logging._setup",
    "celery.app.task:Task.__trace__",
    "celery.backends.cache:_DUMMY_CLIENT_CACHE",
    "celery.utils.collections:ConfigurationView._to_keys",
    "celery.utils.collections:ConfigurationView.changes",
    "celery.worker.request:Request.execute",
    "celery.worker.request:Request.maybe_expire",
    "kombu.transport.memory:Channel.events",
    "kombu.transport.memory:Channel.queues",
    "kombu.transport.memory:Transport.global_state",
    "logging:_warnings_showwarning",
)
