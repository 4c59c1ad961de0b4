"""What of Celery and kombu a test's isolation leans on beyond their documentation.

It is looked at when an app is isolated, and by nobody else: no process in production needs it.
"""

from __future__ import annotations

from ...libraries import Leaning, mentions, takes

_SET_ASIDE = "what an app has open is set aside"
_IN_MEMORY = "two tests see nothing of each other's queues"

LEANS_ON = (
    Leaning("celery.app.base:Celery._pool", _SET_ASIDE),
    Leaning("celery.app.base:Celery._local", _SET_ASIDE),
    Leaning("celery.app.base:Celery.__init__", _SET_ASIDE, mentions("_local")),
    Leaning("celery.app.base:Celery.now", "the app's time moves", takes()),
    Leaning("celery.app.amqp:AMQP._producer_pool", _SET_ASIDE),
    Leaning("celery.app.amqp:Queues._consume_from", _SET_ASIDE),
    Leaning("celery.app.task:Task.__trace__", "a task is traced anew"),
    Leaning("celery.utils.collections:ConfigurationView._to_keys", "a setting is replaced"),
    Leaning("celery.backends.cache:_DUMMY_CLIENT_CACHE", "results in memory are set aside"),
    Leaning("kombu.transport.memory:Channel.queues", _IN_MEMORY),
    Leaning("kombu.transport.memory:Channel.events", _IN_MEMORY),
    Leaning("kombu.transport.memory:Transport.global_state", _IN_MEMORY),
    Leaning(
        "celery.worker.request:Request.execute", "a task runs in a test", mentions("trace_task")
    ),
    Leaning("celery.worker.request:Request.maybe_expire", "a request expires by a test's clock"),
    Leaning("celery._state:default_app", "a worker in a thread leaves no trace"),
    Leaning("celery._state:_tls", "a worker in a thread leaves no trace"),
    Leaning("celery._state:_set_task_join_will_block", "a worker in a thread leaves no trace"),
    Leaning("celery.app.log:Logging._setup", "a worker in a thread leaves logging as it was"),
    Leaning("logging:_warnings_showwarning", "a worker in a thread leaves warnings as they were"),
)
