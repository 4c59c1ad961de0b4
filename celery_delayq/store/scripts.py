"""The Lua scripts, called by name with named arguments.

A script's header is its signature: the loader reads its arguments from it, their order and their
types, and makes them the script's locals. The last may be rows, whose fields the header names as
well, as it names the parts of the reply: see ``reply.py``. Keys have the names of ``keys.py``: the
loader sends those that a script, or what it uses of the prelude, calls by ``keys.NAME``. So nobody
counts positions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import redis

from .. import clock
from ..hooks import Hooks
from ..servers.connection import Connection, packed
from .keys import KEYS, Keys
from .reply import reader_of

_FOLDER = resources.files("celery_delayq.store") / "lua"
_KEY = re.compile(r"\bkeys\.(\w+)")
_ARGUMENT = re.compile(r"^(text|number|flag|filter|rows)(\.\.\.)?\s+(\w+)", re.MULTILINE)
_FIELD = re.compile(r"^ {9}(\w+) {2,}\S", re.MULTILINE)  # of a row
# The arguments that each call begins with, as the line `change` says: see lua/prelude/call.lua.
_CHANGE = re.compile(r"^change ", re.MULTILINE)
_REQUEST = {"operation": "text", "issued": "number", "deadline": "number", "began": "number"}
# What a script has of an argument of each type.
_READ_AS = {
    "text": "ARGV[%d]",
    "number": "tonumber(ARGV[%d])",
    "flag": "ARGV[%d] == '1'",
    "filter": "filter_of(ARGV[%d])",
}
# What scripts share, each part after those that it uses.
_PRELUDE = (
    "record", "history", "extras", "message", "writing", "marks", "due", "call", "left", "claims",
    "entry", "lanes", "late", "back", "pace", "conflict", "targets", "inconsistencies",
)  # fmt: skip
_READS = "\nKeeps    changes nothing"
READ = "read"  # so errors call each of these: their own names mean nothing to users
_DEFINITION = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)
_COMMENT = re.compile(r"--(\[\[.*?\]\]|[^\n]*)", re.DOTALL)


@dataclass(frozen=True)
class Script:
    """One script file: its text, and the signature its header declares.

    ``step``: what it is for, as an error shall say.
    ``read``: makes of a reply what the header says that it is.
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
    def parse(cls, name: str, prelude: str, source: str) -> Script:
        header = source.partition("]]\n")[0]
        arguments = [(word, False) for word in _REQUEST if _CHANGE.search(header)]
        arguments += [(word, bool(dots)) for _, dots, word in _ARGUMENT.findall(header)]
        source = arguments_of(header) + source
        # Its own locals are those of a function, as Lua has room for 200 of each.
        body = f"local function main()\n{source}\nend\nreturn main()\n"
        text = used_of(prelude, source) + body
        named = set(_KEY.findall(_COMMENT.sub("", text)))
        keys = tuple(key for key in KEYS if key in named)
        pairs = ", ".join(f"{key} = KEYS[{place}]" for place, key in enumerate(keys, 1))
        text = f"local keys = {{{pairs}}}\n{text}"
        return cls(
            name=name,
            step=READ if _READS in header else name,
            text=text,
            sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(),
            keys=keys,
            arguments=tuple(word for word, dots in arguments if not dots),
            rest=next((word for word, dots in arguments if dots), None),
            read=_reader_of_call(header) if _CHANGE.search(header) else reader_of(header),
        )

    def argv(self, given: dict[str, Any]) -> list[Any]:
        """The values in the script's order.

        Raises:
            TypeError: a name is missing, or one is given that the script does not declare.
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
    """The same for a call: the time, the verdict and the answer come before what is read."""
    read = reader_of(header)
    return lambda reply: [*reply[:3], *map(read, reply[3:])]


def arguments_of(header: str) -> str:
    """The locals of a script, by what its header declares."""
    lines, first = [], 1
    if _CHANGE.search(header):
        request = (
            f"{name} = {_READ_AS[kind] % at}" for at, (name, kind) in enumerate(_REQUEST.items(), 1)
        )
        lines.append(f"local request = {{{', '.join(request)}}}\n")
        first += len(_REQUEST)
    for at, found in enumerate(_ARGUMENT.finditer(header), first):
        kind, dots, name = found.groups()
        if not dots:
            lines.append(f"local {name} = {_READ_AS[kind] % at}\n")
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


def used_of(prelude: str, source: str) -> str:
    """What *source* needs of the prelude: making all of its functions costs each call 7 us."""
    wanted, used = _words(source), []
    for name, words, block in reversed(_blocks(prelude)):
        if name in wanted:
            wanted |= words
            used.append(block)
    return "".join(reversed(used))


@lru_cache(maxsize=1)
def _blocks(prelude: str) -> list[tuple[str, set[str], str]]:
    """Each definition: its name, the words that it uses, and its text."""
    # It reaches to the next one, and takes what is said about that along.
    found = [*_DEFINITION.finditer(prelude)]
    ends = [*(one.start() for one in found[1:]), len(prelude)]
    texts = [prelude[one.start() : end] for one, end in zip(found, ends, strict=True)]
    return [(one[1], _words(text), text) for one, text in zip(found, texts, strict=True)]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", _COMMENT.sub("", text)))


@lru_cache(maxsize=1)
def load() -> dict[str, Script]:
    """Every script by its name, read once from the package's files."""
    shared = prelude()
    return {
        name: Script.parse(name, shared, path.read_text("utf-8"))
        for path in _FOLDER.iterdir()
        if path.name.endswith(".lua")
        for name in [path.name[: -len(".lua")]]
    }


def prelude() -> str:
    """What scripts share; of it each has what it uses."""
    parts = (_FOLDER / "prelude" / f"{name}.lua" for name in _PRELUDE)
    return "\n".join(part.read_text("utf-8") for part in parts)


class Scripts:
    """The scripts, bound to one Redis and one set of keys.

    Args:
        connection: To that Redis.
        keys: Those of a shard.
        hooks: Who is told how long calls take.
    """

    def __init__(self, connection: Connection, keys: Keys, hooks: Hooks | None = None) -> None:
        self.connection = connection
        self.keys = keys
        self._hooks = hooks or Hooks()
        self._calls: dict[str, _Call] = {}
        self._sent: set[str] = set()

    def call(self, name: str, *, until: float | None = None, **arguments: Any) -> Any:
        """Run one script; load it first where the server does not know it.

        Returns:
            Its reply, with the names that its header gives to the parts.

        Args:
            name: The file's name without ``.lua``.
            until: When to give up; as :meth:`Connection.execute`.
            arguments: The script's ARGV, by the names that its header gives them.

        Raises:
            TypeError: *arguments* are not what the header declares.
            StoreError: as :meth:`Connection.execute`.
        """
        if not self._hooks.hears_calls:
            return self._call(name, until, arguments)
        began = clock.monotonic()
        try:
            return self._call(name, until, arguments)
        finally:
            self._hooks.called(name, clock.monotonic() - began)

    def _call(self, name: str, until: float | None, arguments: dict[str, Any]) -> Any:
        call = self._calls.get(name) or self._prepare(name)
        tail = call.keys + packed(call.script.argv(arguments))
        try:
            # Not asked for before: sent whole, which loads it; that saves an answer of NOSCRIPT.
            if call.script.sha in self._sent:
                command = call.by_sha + tail
                return call.script.read(self.connection.execute(call.script.step, command, until))
        except redis.exceptions.NoScriptError:
            # Flushed, restarted, or failed over to a server that never saw it. It did not run.
            pass
        whole = packed(["EVAL", call.script.text])
        answer = self.connection.execute(call.script.step, whole + tail, until)
        self._sent.add(call.script.sha)
        return call.script.read(answer)

    def call_and(
        self, name: str, command: list[bytes], *, until: float, **arguments: Any
    ) -> list[Any]:
        """Run one script, and a command behind it on the same connection; both answers.

        Args:
            name: As for :meth:`call`.
            command: From :func:`packed`.
            until: As for :meth:`call`.
            arguments: As for :meth:`call`.

        Raises:
            StoreError: as :meth:`call`, of the first that was refused.
        """
        call = self._calls.get(name) or self._prepare(name)
        tail = call.keys + packed(call.script.argv(arguments))
        # Whole, as nothing can be sent anew between the two.
        whole = packed(["EVAL", call.script.text]) + tail
        return self.connection.exchange(call.script.step, [whole, command], until)

    def script(self, name: str) -> Script:
        """One of them; those of a test have another clock."""
        return load()[name]

    def _prepare(self, name: str) -> _Call:
        script = self.script(name)
        names = [self.keys[key] for key in script.keys]
        call = _Call(script, packed(["EVALSHA", script.sha]), packed([len(names), *names]))
        self._calls[name] = call
        return call


@dataclass(frozen=True)
class _Call:
    """What all calls of a script on the same keys have in common, packed."""

    script: Script
    by_sha: list[bytes]
    keys: list[bytes]
