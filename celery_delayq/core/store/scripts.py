"""Calls the Lua scripts by name, with named arguments.

A script's header is its signature. From it the loader reads the arguments, their order and types,
and makes them the script's locals. The last one may be rows; the header names their fields, and the
parts of the reply (see ``reply.py``). Keys have the names of ``keys.py``: the loader sends those
that a script, or the part of the prelude that it uses, reads as ``keys.NAME``. So no code depends
on positions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import redis

from .. import clock
from ..errors import StoreDiffers
from ..hooks import Hooks
from ..servers.connection import Connection, packed
from .assembly import Prelude
from .keys import KEYS, Keys
from .reply import reader_of

FOLDER = resources.files("celery_delayq.core.store") / "lua"
_ARGUMENT = re.compile(r"^(text|number|flag|filter|rows)(\.\.\.)?\s+(\w+)", re.MULTILINE)
_FIELD = re.compile(r"^ {9}(\w+) {2,}\S", re.MULTILINE)  # of a row
# The first arguments of each call, if the header has a line `change`: see lua/prelude/call.lua.
_CHANGE = re.compile(r"^change ", re.MULTILINE)
_REQUEST = {
    "operation": "text",
    "store": "text",
    "issued": "number",
    "deadline": "number",
    "began": "number",
}
# How a script reads an argument of each type.
_READ_AS = {
    "text": "{0}",
    "number": "tonumber({0})",
    "flag": "{0} == '1'",
    "filter": "{0} ~= '' and filter_of({0}) or nil",
}
# The files of the prelude, those that others use first.
PRELUDE = (
    "closed", "record", "history", "extras", "message", "writing", "marks", "due", "held", "call",
    "left", "claims", "entry", "lanes", "late", "back", "pace", "batch", "new_entry", "conflict",
    "targets", "return", "undo", "rules", "inconsistencies",
)  # fmt: skip
_READS = "\nKeeps    changes nothing"
_CLOSED = re.compile(r"^closed +(\d)", re.MULTILINE)  # see lua/prelude/closed.lua
ALWAYS = "9"
READ = "read"  # the name of these scripts in errors: their own mean nothing to users


@dataclass(frozen=True)
class Script:
    """One script file: its text, and the signature in its header.

    ``step``: the step to name in errors.
    ``read``: turns a reply into the parts that the header names.
    """

    name: str
    step: str
    text: str
    sha: str
    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    rest: str | None
    read: Callable[[Any], Any]

    @classmethod
    def parse(cls, name: str, prelude: Prelude, source: str) -> Script:
        header = source.partition("]]\n")[0]
        arguments = [(word, False) for word in _REQUEST if _CHANGE.search(header)]
        arguments += [(word, bool(dots)) for _, dots, word in _ARGUMENT.findall(header)]
        text, keys = prelude.assembled(gate_of(header) + arguments_of(header) + source, KEYS)
        return cls(
            name=name,
            step=READ if _READS in header else name,
            text=text,
            sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(),
            keys=tuple(keys),
            arguments=tuple(word for word, dots in arguments if not dots),
            rest=next((word for word, dots in arguments if dots), None),
            read=_reader_of_call(header) if _CHANGE.search(header) else reader_of(header),
        )

    def argv(self, given: dict[str, Any]) -> list[Any]:
        """Return the values in the script's order.

        Raises:
            TypeError: a name is missing, or the script does not declare it.
        """
        expected = len(self.arguments) + (self.rest is not None)
        try:
            values = [given[name] for name in self.arguments]
            tail = given[self.rest] if self.rest else ()
        except KeyError:
            expected = -1
        if len(given) != expected:
            names = (*self.arguments, *([self.rest] if self.rest else ()))
            raise TypeError(f"{self.name} takes {sorted(names)}, got {sorted(given)}")
        return [*values, *tail]


def _reader_of_call(header: str) -> Callable[[Any], Any]:
    """The same for a call, whose reply begins with time, verdict and answer."""
    read = reader_of(header)
    return lambda reply: [*reply[:3], *map(read, reply[3:])]


def gate_of(header: str) -> str:
    """Return the Lua code that keeps a script out of a closed shard; calls read it themselves."""
    found = _CLOSED.search(header)
    level = found[1] if found else "3" if _READS in header else "1"
    if level == ALWAYS or _CHANGE.search(header):
        return ""
    asked = (
        "local closed = redis.pcall('HGET', keys.meta, 'closed')\n"
        f"local refusal = closed and refusal_of({level}, closed)\n"
    )
    return f"{asked}if refusal then return refusal end\n"


def _read_as(kind: str, at: int) -> str:
    return _READ_AS[kind].format(f"ARGV[{at}]")


def arguments_of(header: str) -> str:
    """Return the Lua code of a script's locals, from its header."""
    lines, first = [], 1
    if _CHANGE.search(header):
        request = (
            f"{name} = {_read_as(kind, at)}" for at, (name, kind) in enumerate(_REQUEST.items(), 1)
        )
        lines.append(f"local request = {{{', '.join(request)}}}\n")
        first += len(_REQUEST)
    for at, found in enumerate(_ARGUMENT.finditer(header), first):
        kind, dots, name = found.groups()
        if not dots:
            lines.append(f"local {name} = {_read_as(kind, at)}\n")
            continue
        rows = header[found.end() :].partition("\n\n")[0]
        fields = _FIELD.findall(rows) if kind == "rows" else []
        pairs = ", ".join(f"{field} = ARGV[at + {place}]" for place, field in enumerate(fields))
        row, step = (f"{{{pairs}}}", len(fields)) if fields else ("ARGV[at]", 1)
        lines.append(
            f"local {name} = {{}}\n"
            f"for at = {at}, #ARGV, {step} do {name}[#{name} + 1] = {row} end\n"
        )
    return "".join(lines)


@lru_cache(maxsize=1)
def load() -> dict[str, Script]:
    """Return every script by name."""
    names = (path.name for path in FOLDER.iterdir())
    return {name[: -len(".lua")]: loaded(name) for name in names if name.endswith(".lua")}


# Each when it is first called: all take 0.2 s, and threads that begin together all do that work.
@cache
def loaded(file: str) -> Script:
    """Return the script of a file, read once."""
    text = (FOLDER / file).read_text("utf-8")
    return Script.parse(file[: -len(".lua")], prelude(), text)


@lru_cache(maxsize=1)
def prelude() -> Prelude:
    """Return the code that scripts share; each script gets the part that it uses."""
    files = (FOLDER / "prelude" / f"{name}.lua" for name in PRELUDE)
    return Prelude(file.read_text("utf-8") for file in files)


class Scripts:
    """The scripts, bound to one Redis and one set of keys.

    Args:
        connection: The connection to that Redis.
        keys: The keys of a shard.
        hooks: Notified how long calls take.
    """

    def __init__(self, connection: Connection, keys: Keys, hooks: Hooks | None = None) -> None:
        self.connection = connection
        self.keys = keys
        self.hooks = hooks or Hooks()
        self._calls: dict[str, _Call] = {}
        self._sent: set[str] = set()

    def call(self, name: str, *, until: float | None = None, **arguments: Any) -> Any:
        """Run a script; load it first if the server does not have it.

        Returns:
            Its reply, with the names that its header gives to the parts.

        Args:
            name: The file's name without ``.lua``.
            until: When to give up; as :meth:`Connection.execute`.
            arguments: The script's arguments, by the names in its header.

        Raises:
            TypeError: *arguments* do not fit the header.
            StoreError: as :meth:`Connection.execute`.
        """
        hears_calls = self.hooks.hears_calls
        began = clock.monotonic() if hears_calls else 0.0
        try:
            return self._call(name, until, arguments)
        except StoreDiffers as error:
            self.hooks.differs(error)
            raise
        finally:
            if hears_calls:
                self.hooks.called(name, clock.monotonic() - began)

    def _call(self, name: str, until: float | None, arguments: dict[str, Any]) -> Any:
        call = self._calls.get(name) or self._prepare(name)
        tail = call.keys + packed(call.script.argv(arguments))
        try:
            # The first time it is sent whole, which loads it and saves an answer NOSCRIPT.
            if call.script.sha in self._sent:
                command = call.by_sha + tail
                return call.script.read(self.connection.execute(call.script.step, command, until))
        except redis.exceptions.NoScriptError:
            # Flushed, restarted, or failed over to a server without it. It did not run.
            pass
        whole = packed(["EVAL", call.script.text])
        answer = self.connection.execute(call.script.step, whole + tail, until)
        self._sent.add(call.script.sha)
        return call.script.read(answer)

    def call_and(
        self, name: str, command: list[bytes], *, until: float, **arguments: Any
    ) -> list[Any]:
        """Run a script, then a command on the same connection; return both answers.

        Args:
            name: As for :meth:`call`.
            command: From :func:`packed`.
            until: As for :meth:`call`.
            arguments: As for :meth:`call`.

        Raises:
            StoreError: as :meth:`call`, for the first of the two that was refused.
        """
        call = self._calls.get(name) or self._prepare(name)
        tail = call.keys + packed(call.script.argv(arguments))
        # Sent whole, as a retry after NOSCRIPT would come after the command.
        whole = packed(["EVAL", call.script.text]) + tail
        return self.connection.exchange(call.script.step, [whole, command], until)

    def script(self, name: str) -> Script:
        """Return a script; tests override this to change the clock."""
        return loaded(f"{name}.lua")

    def _prepare(self, name: str) -> _Call:
        script = self.script(name)
        names = [self.keys[key] for key in script.keys]
        call = _Call(script, packed(["EVALSHA", script.sha]), packed([len(names), *names]))
        self._calls[name] = call
        return call


@dataclass(frozen=True)
class _Call:
    """The common part of all calls of a script on the same keys, packed."""

    script: Script
    by_sha: list[bytes]
    keys: list[bytes]
