"""The body of a waiting message, if the app accepts its content type: its arguments and its canvas.

Arguments are shown as Celery's logs show them. And the signature of a call, as the app sends it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from json import JSONDecoder
from typing import Any

import celery.app.amqp
import celery.app.defaults
from celery import Celery
from celery.app.task import Task
from celery.canvas import Signature, chunks
from celery.result import AsyncResult, GroupResult
from kombu import serialization
from kombu.compression import compress, decompress
from kombu.transport import virtual
from kombu.utils.json import loads, object_hook

from ..errors import InvalidOption, NotATask

#: Serializers that write only data. Reading the output of another may run foreign code.
_DATA = {"json", "msgpack", "yaml"}
_JSON = "application/json"
_decode_json = JSONDecoder(object_hook=object_hook).decode  # kombu makes such a one for each text
_CUT = "..."
_TELLING = 20  # characters in common that show that two texts are not alike by chance
_ALIKE = str.maketrans("[]", "()")


def has_body(message: bytes, body: str | bytes) -> bool:
    """Whether a waiting message has a body, as workers get it: not encoded, but serialised."""
    with suppress(Exception):  # another program's message; or its compression is not installed
        envelope = loads(message)
        raw = envelope["body"]
        if encoding := envelope["properties"].get("body_encoding"):
            raw = virtual.Channel.codecs[encoding].decode(raw)
        if compression := envelope["headers"].get("compression"):
            raw = decompress(raw, compression)
        texts = [text.encode() if isinstance(text, str) else bytes(text) for text in (raw, body)]
        return texts[0] == texts[1]
    return False


def body_of(envelope: dict[str, Any], accept: Any) -> Any:
    """Return the decoded body of a message; ``None`` if it may not or cannot be decoded."""
    try:
        return decoder_of(envelope, accept)(envelope["body"])
    except Exception:
        # Refused, damaged, or compressed by a method that is not installed: treated as not allowed.
        return None


def decoder_of(envelope: Mapping[str, Any], accept: Any) -> Callable[[Any], Any]:
    """Return what decodes the bodies of messages that have all else in common, as a worker does.

    What it raises depends on the serializer and the compression.

    Raises:
        kombu.exceptions.ContentDisallowed: the content type is not among those to accept.
        KeyError, TypeError, AttributeError: a part of the message is missing, or no such part.
    """
    encoding = envelope["properties"].get("body_encoding")
    compression = envelope["headers"].get("compression")
    content = envelope["content-type"], envelope["content-encoding"]
    accepted = serialization.prepare_accept_content(accept)
    serialization.loads(b"", *content, accept=accepted)  # refuses what is not accepted
    is_kombus = serialization.registry._decoders.get(_JSON) is loads

    def decode(body: Any) -> Any:
        if encoding:
            body = virtual.Channel.codecs[encoding].decode(body)
        if compression:
            body = decompress(body, compression)
        if is_kombus and content[0] == _JSON and body:
            return _decode_json(body.decode() if isinstance(body, bytes) else body)
        return serialization.loads(body, *content, accept=accepted)

    return decode


def message_body(message: bytes, accept: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Headers, properties and decoded body of a waiting message."""
    envelope = loads(message)
    return envelope["headers"], envelope["properties"], body_of(envelope, accept)


def data_of(envelope: dict[str, Any], accept: Any) -> Any:
    """As :func:`body_of`, but only to show it: ``None`` for a pickle, even if accepted."""
    with suppress(Exception):  # another program's message may lack it, or have another type
        if serializer_of(envelope["content-type"]) in _DATA:
            return body_of(envelope, accept)
    return None


def serializer_of(content_type: str) -> str:
    """Return the name of the serializer for a content type.

    Raises:
        KeyError: none has it.
    """
    name: str = serialization.registry.type_to_name[content_type]
    return name


def is_serializer(name: object) -> bool:
    """Return whether a serializer has this name."""
    return name in serialization.registry.name_to_type


def shown(app: Celery, args: Any, kwargs: Any) -> tuple[str, str]:
    """Return a message's ``argsrepr`` and ``kwargsrepr``, as Celery writes them."""
    say, deep, amqp = celery.app.amqp.saferepr, depth_of(app), app.amqp
    return (
        say(args, maxlen=amqp.argsrepr_maxsize, **deep),
        say(kwargs, maxlen=amqp.kwargsrepr_maxsize, **deep),
    )


def is_celery_s(text: Any, made: str) -> bool:
    """Whether Celery made a text from the arguments, rather than the caller.

    *made* is Celery's text for the decoded arguments, in which a tuple may have become a list.
    """
    if not isinstance(text, str):
        return False
    ours, theirs = (re.sub(r",(?=\))", "", shape.translate(_ALIKE)) for shape in (made, text))
    if ours == theirs:
        return True
    # Both were truncated, maybe not at the same place.
    if _CUT not in ours or _CUT not in theirs:
        return False
    ours, theirs = ours.partition(_CUT)[0], theirs.partition(_CUT)[0]
    size = min(len(ours), len(theirs))
    return size >= _TELLING and ours[:size] == theirs[:size]


def depth_of(app: Celery) -> dict[str, int]:
    """Return saferepr's option for the depth of nesting.

    Celery 5.7 has a setting for it; earlier versions always use saferepr's default.
    """
    depth = "task_repr_maxlevels"
    return {"maxlevels": app.conf[depth]} if depth in celery.app.defaults.DEFAULTS else {}


def is_canvas(sig: Signature) -> bool:
    """Whether *sig* is more than one plain task."""
    return bool(sig.get("subtask_type")) or isinstance(sig, chunks)


_OF_SIGNATURE = {"task", "args", "kwargs", "options", "subtask_type", "immutable"}


def signatures_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield each signature in a message's body: links, chain, chord, parts of these, arguments."""
    if isinstance(value, dict):
        if value.keys() >= _OF_SIGNATURE:
            yield value
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return
    for part in value:
        yield from signatures_in(part)


def renamed(body: Any, names: Mapping[str, str]) -> bool:
    """Give the tasks of signatures in a message's body new names; return whether one has."""
    is_changed = False
    for signature in signatures_in(body):
        if signature["task"] in names:
            signature["task"] = names[signature["task"]]
            is_changed = True
    return is_changed


def encode_into(envelope: dict[str, Any], body: Any) -> None:
    """Replace a message's body; it is serialised, compressed and encoded as the one before.

    Raises:
        KeyError: the serializer is not known here.
        kombu.exceptions.EncodeError: the serializer cannot encode it.
    """
    content_type, encoding, data = encoded_as(envelope, body)
    envelope.update({"body": data, "content-type": content_type, "content-encoding": encoding})


def encoded_as(envelope: Mapping[str, Any], body: Any) -> tuple[str, str, Any]:
    """Return content type, encoding and data of a body, made as those of a message were.

    Raises:
        KeyError: the serializer is not known here.
        kombu.exceptions.EncodeError: the serializer cannot encode it.
    """
    made = serialization.dumps(body, serializer=serializer_of(envelope["content-type"]))
    content_type, encoding, data = made
    if compression := envelope["headers"].get("compression"):
        data, _ = compress(data, compression)
    if body_encoding := envelope["properties"].get("body_encoding"):
        data = virtual.Channel.codecs[body_encoding].encode(data)
    return content_type, encoding, data


def as_received(value: Any, serializer: str | None) -> Any:
    """Return a value as it is once it was sent: in JSON, a tuple as a list, say."""
    kind, encoding, data = serialization.dumps(value, serializer=serializer)
    return serialization.loads(data, kind, encoding, accept=[kind])


def options_after(embed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the options of each task after a message's: the rest of its chain, its chord's body.

    Args:
        embed: The last part of a message's body, behind the arguments.
    """
    for part in filter(None, [*(embed.get("chain") or ()), embed.get("chord")]):
        # Of a chord, the body runs last.
        last = part["kwargs"]["body"] if part["task"] == "celery.chord" else part
        yield last["options"]


_ANOTHER_APP_S = (
    "a task of the app {}; for a task of another app use that app's DelayQ, or app.signature(name) "
    "to send it by its name"
)


def signature_of(given: Signature | Task, app: Celery) -> Signature:
    """Return a signature, or a task without arguments, as a signature that *app* sends.

    A ``shared_task`` leads to the current app of the thread, which may be another one: the app that
    was made last, or an app named ``default``, which Celery makes for a thread without one.

    Raises:
        NotATask: it is neither.
        InvalidOption: its task is another app's.
    """
    signature = given.s() if isinstance(given, Task) else given
    if not isinstance(signature, Signature):
        raise NotATask("signature", given, f"a signature, or a task{_hint(given)}")
    # A canvas is sent part by part; `marked` looks at each part.
    return signature if is_canvas(signature) else sent_by(app, signature)


def sent_by(app: Celery, signature: Signature) -> Signature:
    """Return a plain signature as *app* sends it: with the app's own task, or by the task's name.

    Raises:
        InvalidOption: its task belongs to another app, which alone has its options.
    """
    given, name = signature._type, signature["task"]
    # The app of a task that no app has registered is Celery's proxy of the current app.
    task = given if given is not None and given.app == app else app.tasks.get(name)
    its_own = given if task is None else task
    if its_own is not None and its_own.app != app:
        raise InvalidOption("signature", name, _ANOTHER_APP_S.format(app.main))
    if signature._app is app and given in (None, task):
        return signature
    bound = Signature.__new__(type(signature))  # `clone` would make a map a plain signature
    bound.update(signature)
    bound._app, bound._type = app, task
    return bound


def _hint(given: Any) -> str:
    if isinstance(given, (AsyncResult, GroupResult)):
        return "; this task was already sent: pass task.s(...), which sends nothing"
    if isinstance(given, (list, tuple)):
        return "; schedule many one by one, or as a group"
    if isinstance(given, str):
        return "; for a task's name, pass app.signature(name)"
    return ", like task.s(...)"
