"""A bulk's message: made by Celery for the first two items, and from then on filled in.

    item 1 --Celery--> message --+
                                 +-- agree in all but what an item explains --> prepared message
    item 2 --Celery--> message --+                                                    |
    item 3 .. n ----- id, arguments, body, texts for logs ----------------------------+--> entries

For every item of a bulk, ``apply_async`` computes mostly the same: options, routing, headers, the
record's template. If no function on the way looks at single items (:mod:`.patches`), the other
messages are made from the first one: their own id, arguments and body fill the gaps of the
record's template. Only bulks do this; Celery makes the message of each single call.

The rate of a bulk depends on two functions that replace a library's: the text that ``saferepr``
makes of plain arguments (18 to 40 % of the caller's time), and ``servers.connection.packed`` (10
to 20 %).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import celery.app.amqp

from ..core.clock import When
from ..core.message.body import depth_of
from ..core.message.outgoing import LARGE, PLAIN_ID, OutgoingMessage, dumps, record_of
from ..core.scheduling.writing import Ready
from ..core.store import NewEntry
from ..core.store.record import NewRecord, Template

_SIMPLE = {bool, int, float, type(None)}


@dataclass(frozen=True)
class PreparedMessage:
    """The common parts of a bulk's messages, and the functions that make the others."""

    header: bytes
    labels: bytes
    template: Template
    fixed: tuple[str, str, str]
    headers: str
    embed: Any
    encode: Callable[[Any], str]
    describe: tuple[Callable[[Any], str], Callable[[Any], str]]

    @classmethod
    def of(cls, app: Any, message: OutgoingMessage, header: bytes) -> PreparedMessage | None:
        """Return the prepared form of a message; ``None`` if it shares no template."""
        lines, differing = message.shareable()
        if not lines:
            return None
        root, parent, expires, _, kwargs, _ = differing
        return cls(
            header,
            message.labels,
            Template.of(lines),
            (root, parent, expires),
            kwargs.removeprefix(dumps(message.headers["kwargsrepr"])),
            message.payload[2],
            message.encode,
            _describers(app),
        )

    def explains(self, ready: Ready) -> bool:
        """Whether filling in a message's arguments gives that message, byte for byte."""
        made = ready.message
        args, kwargs, _ = made.payload
        shared = record_of(made.message, ready.header, made.labels, share=True)
        return self.new_record(args, kwargs) == shared

    def new(self, task: Any, args: Any, kwargs: Any, when: When, task_id: str) -> NewEntry | None:
        """Return an entry for these arguments; ``None`` if Celery must make it.

        Raises:
            TypeError: the arguments do not fit *task* (``None`` if only its name is known).
            kombu.exceptions.EncodeError: as :meth:`new_record`.
        """
        if not PLAIN_ID.fullmatch(task_id):
            return None
        # A task that is a class without a function has none.
        fits = getattr(task, "__header__", None)
        if fits is not None and task.typing:
            fits(*args, **kwargs)
        record = self.new_record(args, kwargs)
        return NewEntry(task_id, when, record) if record else None

    def new_record(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewRecord | None:
        """Return the record for these arguments; ``None`` if it should not share a template.

        Raises:
            kombu.exceptions.EncodeError: the serializer cannot take the arguments.
        """
        body = self.encode((args, kwargs, self.embed))
        if len(body) > LARGE:
            return None
        of_args, of_kwargs = self.describe
        shown = dumps(of_kwargs(kwargs) if kwargs else "{}") + self.headers
        differing = (*self.fixed, dumps(of_args(args)), shown, dumps(body))
        return self.template.new_record(self.header, self.labels, differing)


class Preparation:
    """Reads a bulk's first messages, and prepares one as soon as two of them agree."""

    def __init__(self, app: Any) -> None:
        self.message: PreparedMessage | None = None
        self._app = app
        self._first: tuple[Ready, PreparedMessage] | None = None
        self._failed = False

    def learn(self, ready: Ready) -> None:
        """Take in one more message that Celery made."""
        if self.message or self._failed:
            return
        made = PreparedMessage.of(self._app, ready.message, ready.header)
        if made is None:
            return  # large, or unusual; another one may do
        if self._first is None:
            self._first = (ready, made)
            return
        first, message = self._first
        # If both had the same id, its place in the message would stay unknown.
        agree = first.new.task_id != ready.new.task_id and first.policy == ready.policy
        if agree and message.explains(first) and message.explains(ready):
            self.message = message
        else:
            self._failed = True


def _describers(app: Any) -> tuple[Callable[[Any], str], Callable[[Any], str]]:
    deep, amqp = depth_of(app), app.amqp
    return (
        partial(_described, maxlen=amqp.argsrepr_maxsize, **deep),
        partial(_described, maxlen=amqp.kwargsrepr_maxsize, **deep),
    )


def _described(values: Any, maxlen: int, **deep: int) -> str:
    """Return saferepr's text of arguments; by repr if that is the same, and saves a fifth."""
    if type(values) is tuple and all(map(_is_simple, values)):
        text = repr(values)
        if len(text) < maxlen // 2:
            return text
    described: str = celery.app.amqp.saferepr(values, maxlen=maxlen, **deep)
    return described


def _is_simple(value: Any) -> bool:
    if type(value) is not str:
        return type(value) in _SIMPLE
    # saferepr leaves a backslash alone, and knows one kind of quotation mark.
    return value.isprintable() and "'" not in value and "\\" not in value
