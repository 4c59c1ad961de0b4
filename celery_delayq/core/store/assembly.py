"""Puts a script's text together: its own lines, and what it uses of the prelude.

A call runs the whole text, and makes each of its functions anew, used or not. Therefore

- a script has of the prelude what it uses, and nothing else;
- a constant of the prelude is a literal wherever it is used, and ``keys.NAME`` is ``KEYS[n]``: as a
  local, each function that uses it would have to take it along;
- below a line ``-- Rare`` of a file, functions are rare. These, and what only they use, are made
  when the first of them is called: ``NAME`` is ``rare().NAME`` outside of them. (With a part for
  each file, a keyed replace would make 71 functions instead of 87, and 13 more that make parts.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

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
