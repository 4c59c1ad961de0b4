"""The private names of other libraries that this package relies on, and what happens without one.

    messages would be wrong    --> LibraryChanged, when DelayQ(app) is created
    anything else              --> that feature is off, with one warning

The dependencies have no upper bound, so a release may lack one of these names. Documented names are
not listed. Nor are those that only make bulks fast: ``operations/patches.py`` checks them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from importlib import metadata
from pkgutil import resolve_name
from typing import Any

from .errors import LibraryChanged
from .text import logger_of

logger = logger_of(__name__)

#: The oldest and newest versions that this package is tested with.
TRIED = {
    "celery": ("5.4", "5.7"),
    "kombu": ("5.4", "5.7"),
    "amqp": ("5.2", "5.4"),
    "redis": ("5.3", "8.1"),
}

_TASK = "task_id name args kwargs countdown eta group_id group_index expires"

#: The names that build, capture and publish a message, with the first arguments of functions.
MESSAGES: Mapping[str, str] = {
    "celery.app.base:Celery.amqp_cls": "",
    "celery.app.amqp:AMQP.as_task_v1": _TASK,
    "celery.app.amqp:AMQP.as_task_v2": _TASK,
    "celery.app.amqp:AMQP._create_task_sender": "",
    "celery.app.amqp:AMQP.Router": "",
    "celery.app.amqp:task_message": "headers properties body sent_event",
    "celery.app.routes:Router.route": "options name args kwargs task_type",
    "celery.canvas:Signature.subtask_type": "",
    "kombu:Queue.as_dict": "recurse",
    "kombu.serialization:registry.type_to_name": "",
    "kombu.transport.virtual:Channel.basic_publish": "message exchange routing_key",
    "kombu.transport.virtual:Channel._inplace_augment_message": "message exchange routing_key",
    "kombu.transport.virtual:Channel.encode_body": "body encoding",
    "kombu.transport.virtual:Channel.body_encoding": "",
    "kombu.transport.virtual:Channel.codecs": "",
    "kombu.transport.redis:Channel.sep": "",
    "kombu.transport.redis:Channel.priority_steps": "",
}


class Feature(Enum):
    """The features that are off if a name that they need is gone, as the warning names them."""

    ADOPTING = "delayq_adopt_after"
    DJANGO = "scheduling when a Django transaction commits"
    HOLDING = "delayq_unique_until"
    INSPECTING = "app.control.inspect().delayq()"
    LATER_SETTINGS = "noticing settings that change after the first call"
    LOOKS = "Celery's look of the delayq commands"
    ONCE = "delayq_once"
    PUSHING = "pushing many messages to a Redis list at a time"
    PUTTING_OFF = "self.defer() and Defer"
    REMOTE_CONTROL = "a worker's remote commands for scheduled tasks"
    REVOKED_RESULTS = "REVOKED in the result backend for cancelled tasks"
    UNKNOWN_TASKS = "delayq_unknown_for"
    UNROUTABLE = "detecting messages that reach no queue"


LEANS_ON: Mapping[Feature, tuple[str, ...]] = {
    Feature.ADOPTING: (
        "celery.worker.consumer.consumer:Consumer.update_strategies",
        "celery.worker.state:revoked",
        "celery.worker.state:revoked_stamps",
    ),
    Feature.DJANGO: ("celery.app.base:Celery._fixups", "celery.fixups.django:DjangoFixup"),
    Feature.HOLDING: (
        "celery.worker.consumer.consumer:Consumer.on_decode_error",
        "celery.worker.consumer.consumer:Consumer.on_invalid_task",
        "celery.worker.consumer.consumer:Consumer.on_unknown_task",
        "celery.worker.request:Request._already_cancelled",
        "celery.worker.request:Request.execute_using_pool",
        "celery.worker.request:Request.on_accepted",
        "celery.worker.request:Request.on_failure",
        "celery.worker.request:Request.on_success",
        "celery.worker.request:Request.reject",
    ),
    Feature.INSPECTING: ("celery.app.control:Inspect._request",),
    Feature.LATER_SETTINGS: ("celery.utils.collections:ConfigurationView.changes",),
    Feature.LOOKS: (
        "celery.bin.base:CeleryCommand",
        "celery.bin.base:CeleryOption",
        "celery.bin.base:handle_preload_options",
    ),
    Feature.ONCE: ("celery.worker.consumer.consumer:Consumer.update_strategies",),
    Feature.PUSHING: ("kombu.transport.redis:Channel.conn_or_acquire",),
    Feature.PUTTING_OFF: (
        "celery.app.task:Context.called_directly",
        "celery.app.task:Task.on_bound",
        "celery.app.task:Task.signature_from_request",
    ),
    Feature.REMOTE_CONTROL: (
        "celery.worker.control:Panel.data",
        "celery.worker.control:query_task",
        "celery.worker.control:revoke",
        "celery.worker.control:revoke_by_stamped_headers",
        "celery.worker.control:scheduled",
        "celery.worker.control:terminate",
    ),
    Feature.REVOKED_RESULTS: ("celery.backends.base:Backend.mark_as_revoked",),
    Feature.UNKNOWN_TASKS: (
        "celery.worker.consumer.consumer:Consumer.on_decode_error",
        "celery.worker.consumer.consumer:Consumer.on_invalid_task",
        "celery.worker.consumer.consumer:Consumer.on_unknown_message",
        "celery.worker.consumer.consumer:Consumer.on_unknown_task",
        "celery.worker.state:revoked",
    ),
    Feature.UNROUTABLE: ("kombu.transport.virtual:Channel._lookup",),
}


@cache
def check_messages() -> None:
    """Check the names that make messages; once in a process.

    Raises:
        LibraryChanged: one is gone, or takes other arguments.
    """
    _refuse(problem for problem in (_problem(*message) for message in MESSAGES.items()) if problem)


def need(names: Iterable[str]) -> None:
    """Check the names that a test's helper needs.

    Raises:
        LibraryChanged: one is gone.
    """
    _refuse(f"{name} is gone" for name in names if _is_gone(name))


@cache
def works(feature: Feature) -> bool:
    """Return whether all names that a feature needs are there; if not, warn once."""
    gone = [name for name in LEANS_ON[feature] if _is_gone(name)]
    if gone:
        library = gone[0].partition(".")[0]
        installed = f"{library} {_version(library)}"
        logger.warning("%s: off, as %s lacks %s", feature.value, installed, ", ".join(gone))
    return not gone


def _is_gone(name: str) -> bool:
    try:
        resolve_name(name)
    except (ImportError, AttributeError):
        return True
    return False


def _problem(name: str, takes: str) -> str:
    if _is_gone(name):
        return f"{name} is gone"
    if takes and not _takes(resolve_name(name), takes.split()):
        return f"{name} does not take ({takes.replace(' ', ', ')})"
    return ""


def _takes(found: Any, names: list[str]) -> bool:
    """Whether these are its first arguments; a wrapper with ``*args`` passes them on."""
    taken = inspect.signature(found).parameters
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in taken.values()):
        return True
    return [name for name in taken if name != "self"][: len(names)] == names


def _refuse(problems: Iterable[str]) -> None:
    found = list(problems)
    if found:
        raise LibraryChanged(found, {name: _version(name) for name in TRIED}, TRIED)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
