r"""Every private or undocumented name that this package leans on, and whether it is still there.

    store    message    handover    here
      \         |          |        /
       +--- leanings, each with what is expected of it ---> looked at once, by DelayQ(app)

The dependencies have no upper bound, so a release of a library may come that changes one of them.
It shows in one sentence then, before a message is made, and never in a message that is wrong.

Not here is what only bulks lean on to be fast: :mod:`..scheduling.untouched` looks at it, and
where something is missing, Celery makes every message.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import Any

from ..errors import LibraryChanged
from ..handover import libraries as handover
from ..libraries import Leaning, has, is_cached_property, mentions, takes, takes_at
from ..message import libraries as message
from ..scheduling.decision import EXPIRES_AT
from ..servers import libraries as store

#: The versions that this package was tried with, oldest and newest.
TRIED = {
    "celery": ("5.4", "5.7"),
    "kombu": ("5.4", "5.7"),
    "amqp": ("5.2", "5.4"),
    "redis": ("5.3", "8.1"),
}


def _checks_arguments_as_known(apply_async: Any) -> str:
    # Celery before 5.5 knows nothing of pydantic. A bulk goes by this one attribute of a task.
    names = {name for name in apply_async.__code__.co_names if "pydantic" in name}
    unknown = sorted(names - {"_dump_pydantic_arguments"})
    return f"uses {', '.join(unknown)}" if unknown else mentions("__header__")(apply_async)


_OWN = (
    Leaning("celery.app.base:Celery.amqp", "an app's AMQP class is replaced", is_cached_property),
    Leaning(
        "celery.app.base:Celery.control", "an app's Control class is replaced", is_cached_property
    ),
    Leaning(
        "celery.app.amqp:AMQP.__init__",
        "what makes a message can be overridden",
        mentions("as_task_v2"),
    ),
    Leaning(
        "celery.app.amqp:AMQP.as_task_v2",
        "a message's expiry counts from its due time",
        takes_at(EXPIRES_AT, "expires"),
    ),
    Leaning(
        "celery.app.amqp:AMQP._create_task_sender",
        "a message is scheduled instead of sent",
        takes(),
    ),
    Leaning(
        "celery.app.amqp:task_message",
        "a message carries its request",
        has("headers", "properties", "body", "sent_event", "_replace", "_make"),
    ),
    Leaning("celery.app.amqp:AMQP.Router", "an eta on quorum queues is undone", takes()),
    Leaning(
        "celery.app.routes:Router.route",
        "an eta on quorum queues is undone",
        takes("options", "name", "args", "kwargs", "task_type"),
    ),
    Leaning("celery.app.amqp:AMQP.argsrepr_maxsize", "arguments are described in logs"),
    Leaning("celery.app.amqp:AMQP.kwargsrepr_maxsize", "arguments are described in logs"),
    Leaning(
        "celery.app.amqp:saferepr",
        "arguments are described in logs",
        takes("values", "maxlen=", "maxlevels="),
    ),
    Leaning("celery.app.defaults:DEFAULTS", "how deep arguments are described in logs"),
    Leaning(
        "celery.app.task:Task.apply_async",
        "a bulk's arguments are checked; those that are pydantic models are left to Celery",
        _checks_arguments_as_known,
    ),
    Leaning(
        "celery.app.base:Celery._task_from_fun",
        "a task's attributes are defaults of its calls' options",
        mentions("_tasks"),
    ),
    Leaning("celery.app.base:Celery.current_worker_task", "a running task schedules itself anew"),
    Leaning("celery.app.task:Task.on_bound", "a task can be put off", takes_at(1, "app")),
    Leaning(
        "celery.app.autoretry:add_autoretry_behaviour",
        "no automatic retry takes a task that is put off for a failure",
        mentions("_orig_run"),
    ),
    Leaning(
        "celery.app.task:Task.signature_from_request",
        "a task that is put off stays the same",
        takes("request", "argsrepr="),
    ),
    Leaning("celery.app.task:Context.called_directly", "only a running task is put off"),
    Leaning(
        "celery.utils.collections:ConfigurationView.clear",
        "a setting that is changed later is honoured",
        mentions("changes"),
    ),
    Leaning(
        "celery.app.base:Celery.__reduce_keys__",
        "a copy of an app has a DelayQ",
        mentions("fixups"),
    ),
    Leaning("celery.app.base:Celery._fixups", "whether Django's tasks are wanted"),
    Leaning("celery.fixups.django:DjangoFixup", "whether Django's tasks are wanted"),
    Leaning("celery.app.base:Celery.AsyncResult", "results know what waits", is_cached_property),
    Leaning("celery.result:AsyncResult.state", "results know what waits"),
    Leaning("celery.result:AsyncResult._get_task_meta", "a result's state", takes()),
    Leaning("celery.result:AsyncResult.__del__", "a result takes its subscription back", takes()),
    Leaning("celery.result:AsyncResult.__reduce_args__", "a result is pickled", takes()),
    Leaning("celery.result:GroupResult.__reduce_args__", "a group's result is pickled", takes()),
    Leaning(
        "celery.backends.base:Backend.mark_as_revoked",
        "the result of a cancelled task is REVOKED",
        takes("task_id", "reason", "request="),
    ),
    # Loaded where they are needed only: with a Redis result backend, in a worker, by a command.
    Leaning(
        "celery.backends.redis:ResultConsumer.__init__",
        "a result unsubscribes from what it subscribed to",
        mentions("subscribed_to"),
    ),
    Leaning(
        "celery.app.trace:TraceInfo.handle_retry",
        "a retry that is cancelled stays REVOKED",
        mentions("mark_as_retry", "task_retry"),
    ),
    Leaning(
        "celery.backends.base:BaseKeyValueStoreBackend.get_key_for_task",
        "a result takes its subscription back",
        takes("task_id"),
    ),
    Leaning(
        "celery.worker.control:Panel.data",
        "workers cancel what waits, and show it",
        has(
            *("revoke", "terminate", "query_task", "scheduled", "dump_schedule"),
        ),
    ),
    Leaning(
        "celery.worker.control:revoke",
        "workers cancel what waits",
        takes("state", "task_id"),
    ),
    Leaning("celery.worker.state:revoked", "a message that is revoked is not adopted"),
    Leaning("celery.worker.state:revoked_stamps", "a message that is revoked is not adopted"),
    Leaning("celery.app.control:Control.revoke", "revoke reaches what waits", takes("task_id")),
    Leaning(
        "celery.worker.request:Request.__init__",
        "a running task knows which message it was",
        mentions("properties", "delivery_info"),
    ),
    Leaning(
        "celery.app.control:Control.inspect",
        "workers are asked for their store",
        is_cached_property,
    ),
    Leaning(
        "celery.app.control:Inspect._request", "workers are asked for their store", takes("command")
    ),
    Leaning(
        "celery.worker.control:terminate",
        "workers cancel what waits",
        takes("state", "signal", "id"),
    ),
    Leaning("celery.worker.control:query_task", "workers show what waits", takes("state", "ids")),
    Leaning("celery.worker.control:scheduled", "workers show what waits", takes("state")),
    Leaning(
        "celery.worker.consumer.consumer:Consumer.update_strategies",
        "workers recognise what was to be scheduled",
        mentions("strategies"),
    ),
    Leaning(
        "kombu.messaging:Consumer._add_tag",
        "workers know which of an exchange's queues a message came from",
        mentions("_active_tags"),
    ),
    Leaning("celery.worker.components:Pool", "a worker's scanner starts after its pool"),
    Leaning("celery.bin.base:CeleryCommand", "the delayq command"),
    Leaning("celery.bin.base:CeleryOption", "the delayq command"),
    Leaning("celery.bin.base:handle_preload_options", "the delayq command", takes("f")),
)

LEANINGS: tuple[Leaning, ...] = (
    *_OWN,
    *message.LEANS_ON,
    *handover.LEANS_ON,
    *store.LEANS_ON,
)

_settled: set[Leaning] = set()


def check(leanings: Sequence[Leaning] = LEANINGS) -> None:
    """Look at each leaning whose module is loaded; once in a process.

    Args:
        leanings: Those of a helper that not every process has; by default the package's.

    Raises:
        LibraryChanged: one is gone, or is not what it was.
    """
    due = [leaning for leaning in leanings if leaning not in _settled and leaning.is_loaded]
    problems = [problem for problem in (leaning.problem() for leaning in due) if problem]
    if problems:
        raise LibraryChanged(problems, {name: _version(name) for name in TRIED}, TRIED)
    _settled.update(due)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
