"""The Lua scripts: how a text is put together, how a reply is read, and calls with named arguments.

    SCRIPT.lua + what it uses of the prelude --load--> text --EVALSHA, named arguments--> reply
    header: arguments, rows, the parts of the reply ----------------------> read by these names

A script's header is its signature. From it the loader reads the arguments, their order and types,
and makes them the script's locals. The last one may be rows; the header names their fields, and the
parts of the reply. Keys have the names of ``keys.py``: the loader sends those that a script, or the
part of the prelude that it uses, reads as ``keys.NAME``. So no code depends on positions.

A call runs the whole text, and makes each of its functions anew, used or not. Therefore

- a script has of the prelude what it uses, and nothing else;
- a constant of the prelude is a literal wherever it is used, and ``keys.NAME`` is ``KEYS[n]``: as a
  local, each function that uses it would have to take it along;
- below a line ``-- Rare`` of a file, functions are rare. These, and what only they use, are made
  when the first of them is called: ``NAME`` is ``rare().NAME`` outside of them. (With a part for
  each file, a keyed replace would make 71 functions instead of 87, and 13 more that make parts.)

A part of a reply is a value or rows. The fields of all rows stand one after the other in the reply
(``of``), or in one text with blanks between (``in words of``), which a client reads faster. If
there is nothing but rows, the name may be left out. A word may have parts, each after a colon and
the letter that names it.
"""

from __future__ import annotations

import hashlib
import re
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib import resources
from typing import Any

import redis

from .. import clock
from ..errors import StoreDiffers
from ..hooks import Hooks
from ..servers.connection import Connection, packed
from ..settings import Settings
from .keys import KEYS, Keys

_WORD = r"[A-Za-z_]\w*"
# In this order: comments, texts, what joins texts, fields and methods, numbers, names.
_TOKEN = re.compile(
    rf"(--\[\[.*?\]\]|--[^\n]*)|'(?:\\.|[^'\\\n])*'|\.\.|[.:]\w+|\d\w*|({_WORD})(\s*=(?!=))?",
    re.DOTALL,
)
_DEFINITION = re.compile(rf"^(?:local (function )?({_WORD})(.*)|-- Rare\b.*)$", re.MULTILINE)
_CONSTANT = re.compile(r" = (\d+|'(?:\\.|[^'\\\n])*')(?: *--.*)?$")
_ASKED = re.compile(r"\brare\(\)\.(\w+)")
_KEY = re.compile(r"\bkeys\.(\w+)")


class Code:
    """Lua code without its comments.

    Args:
        text: The code.

    Attributes:
        words: The names that it reads; fields are none.
    """

    def __init__(self, text: str) -> None:
        self._pieces: list[tuple[str, str]] = []  # a name, and what stands before it
        before, last = "", 0
        for found in _TOKEN.finditer(text):
            comment, name, is_set = found.groups()
            if comment:
                before += text[last : found.start()]
            elif name and not is_set:  # else it is written to, or the name of a field
                self._pieces.append((before + text[last : found.start()], name))
                before = ""
            else:
                continue
            last = found.end()
        self._rest = (before + text[last:]).rstrip() + "\n"
        self.words = {name for _, name in self._pieces}

    def with_names(self, by: Mapping[str, str]) -> str:
        """Return the code with other words for some names."""
        return "".join([before + by.get(name, name) for before, name in self._pieces]) + self._rest


@dataclass(frozen=True)
class Definition:
    """A local of the prelude: a function, or a value.

    Attributes:
        name: Its name.
        text: Its lines, and what follows up to the next one.
        is_function: Or a value.
        is_rare: Whether it stands among the rare ones.
        literal: A constant's value; or ``None``.
    """

    name: str
    text: str
    is_function: bool
    is_rare: bool
    literal: str | None

    @cached_property
    def code(self) -> Code:
        """Its lines, read when a script uses it."""
        return Code(self.text)


def definitions_of(text: str) -> Iterator[Definition]:
    """Yield each definition of a file of the prelude, in order."""
    found, is_rare = [*_DEFINITION.finditer(text)], False
    ends = [*(match.start() for match in found[1:]), len(text)]
    for match, end in zip(found, ends, strict=True):
        is_rare = is_rare or not match[2]
        if not match[2]:
            continue
        constant = None if match[1] else _CONSTANT.match(match[3])
        own = text[match.start() : end]
        yield Definition(match[2], own, bool(match[1]), is_rare, constant and constant[1])


class Prelude:
    """What scripts share.

    Args:
        files: The text of each file, each after those that it uses.

    Attributes:
        definitions: Each one by its name, in order.
    """

    def __init__(self, files: Iterable[str]) -> None:
        found = [definition for text in files for definition in definitions_of(text)]
        self.definitions: Mapping[str, Definition] = {
            definition.name: definition for definition in found
        }

    def used(self, source: Code) -> list[Definition]:
        """Return what a script uses, constants included, each after those that it uses."""
        used = _closure(sorted(source.words), self._words)
        return [self.definitions[name] for name in used if name in self.definitions]

    def assembled(self, text: str, keys: Iterable[str]) -> tuple[str, list[str]]:
        """Return a script's whole text, and the keys that it names.

        Args:
            text: The script's own lines, which become the body of a function, because Lua has room
                for 200 locals in each, and for 60 of outer functions.
            keys: All keys, in the order in which a script gets those that it names.
        """
        source = Code(text)
        used = self.used(source)
        rare = self._rare(source, used)
        literals = {
            definition.name: definition.literal
            for definition in used
            if definition.literal is not None
        }
        elsewhere = literals | {name: f"rare().{name}" for name in rare}
        made = [definition for definition in used if definition.literal is None]
        lines = [
            definition.code.with_names(elsewhere)
            for definition in made
            if definition.name not in rare
        ]
        text = f"{''.join(lines)}local function main()\n{source.with_names(elsewhere)}end\n"
        if rare:
            own = "".join(
                definition.code.with_names(literals)
                for definition in made
                if definition.name in rare
            )
            fields = ", ".join(f"{name} = {name}" for name in sorted({*_ASKED.findall(text)}))
            text = (
                f"local rare\n{text}rare = function()\n{own}local made = {{{fields}}}\n"
                "rare = function() return made end\nreturn made\nend\n"
            )
        text += "return main()\n"
        named = {*_KEY.findall(text)}
        given = [key for key in keys if key in named]
        places = {key: f"KEYS[{place}]" for place, key in enumerate(given, 1)}
        if "keys[" in text:  # a key by a name that only the call knows
            pairs = ", ".join(f"{key} = {place}" for key, place in places.items())
            text = f"local keys = {{{pairs}}}\n{text}"
        return _KEY.sub(lambda key: places[key[1]], text), given

    def _rare(self, source: Code, used: list[Definition]) -> set[str]:
        """Return the names of the rare functions, and of what only they use."""
        rare = {
            definition.name for definition in used if definition.is_rare and definition.is_function
        }
        values = {definition.name for definition in used if not definition.is_function}
        common = _closure((source.words | values) - rare, lambda name: self._words(name) - rare)
        return {definition.name for definition in used}.difference(common)

    def _words(self, name: str) -> set[str]:
        return self.definitions[name].code.words if name in self.definitions else set()


def _closure(names: Iterable[str], of: Callable[[str], Iterable[str]]) -> list[str]:
    """Return these names, and all that they lead to; each after those that it leads to."""
    found: dict[str, None] = {}
    seen = set[str]()

    def visit(name: str) -> None:
        if name not in seen:
            seen.add(name)
            for each in sorted(of(name)):
                visit(each)
            found[name] = None

    for name in names:
        visit(name)
    return [*found]


_REPLY = re.compile(r"^reply +(.+(?:\n {9}.+)*)", re.MULTILINE)
_PART = re.compile(r"(\w*?) ?((?:in words )?)of ([\w ]+)")
_new_type: Callable[..., Any] = namedtuple  # noqa: PYI024 - the names are known when it is called


@dataclass(frozen=True)
class _Part:
    """A part of a reply: rows if it has *fields*, else a value."""

    name: str
    fields: tuple[str, ...] = ()
    is_text: bool = False

    @classmethod
    def parse(cls, text: str) -> _Part:
        found = _PART.fullmatch(text)
        return cls(found[1], tuple(found[3].split()), bool(found[2])) if found else cls(text)

    def reader(self) -> Callable[[Any], Any]:
        """Return a function that makes rows of this part."""
        make, size = _new_type(self.name or "Row", self.fields)._make, len(self.fields)

        def read(value: Any) -> list[Any]:
            flat = value.split() if self.is_text else value
            return [make(row) for row in zip(*[iter(flat)] * size, strict=True)]

        return read


def reader_of(header: str) -> Callable[[Any], Any]:
    """Return a function that makes a named tuple of a script's reply, by the names in its header.

    Parts missing at the end of a reply are ``None``. If the reply does not fit the header, the
    function raises ``ValueError`` or ``TypeError``.
    """
    found = _REPLY.search(header)
    if not found:
        return lambda reply: reply
    parts = [_Part.parse(" ".join(part.split())) for part in found[1].split(",")]
    if not parts[0].name:
        return parts[0].reader()
    names = [part.name for part in parts]
    reply_type = _new_type("Reply", names, defaults=[None] * len(names))
    readers = [(place, part.reader()) for place, part in enumerate(parts) if part.fields]

    def read(reply: Sequence[Any]) -> Any:
        values = list(reply)
        for place, rows in readers:
            if place < len(values):
                values[place] = rows(values[place])
        return reply_type(*values)

    return read


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
        settings: This process's settings, for those who call a script.
        hooks: Notified how long calls take.
    """

    def __init__(
        self, connection: Connection, keys: Keys, settings: Settings, hooks: Hooks | None = None
    ) -> None:
        self.connection = connection
        self.keys = keys
        self.settings = settings
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
