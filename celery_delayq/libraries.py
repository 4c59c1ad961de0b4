"""How a private or undocumented name of a library is written down that this package leans on.

Each room lists its own (``servers.libraries``, ``message.libraries``, ``handover.libraries``);
``integration.contract`` puts the lists together and looks at them when a ``DelayQ`` is made.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

#: A name that is not there.
MISSING: Any = object()

#: What is wrong with what was found; empty if nothing is.
Expectation = Callable[[Any], str]


@dataclass(frozen=True)
class Leaning:
    """One name that is leaned on.

    Attributes:
        where: ``module:qualified.name``.
        why: What would not work without it.
        expects: What the name has to be, besides being there.
    """

    where: str
    why: str
    expects: Expectation = lambda _: ""

    @property
    def module(self) -> str:
        return self.where.partition(":")[0]

    @property
    def is_loaded(self) -> bool:
        """Whether its module is; one that nothing has imported is not leaned on yet."""
        return self.module in sys.modules

    def find(self) -> Any:
        """What the name is in the installed library; :data:`MISSING` if it is not there."""
        names = self.where.partition(":")[2].split(".")
        return reduce(lambda found, name: getattr(found, name, MISSING), names, self._module())

    def problem(self) -> str:
        """What is wrong with it, for a reader; empty if nothing is."""
        found = self.find()
        if found is MISSING:
            return f"{self.where} is gone"
        wrong = "" if self._is_wrapped(found) else self.expects(found)
        return wrong and f"{self.where} {wrong}"

    def _is_wrapped(self, found: Any) -> bool:
        """Whether somebody else put a function there, which shows nothing of the library's."""
        if not callable(found):
            return False
        function, library = _function(found), self.module.partition(".")[0]
        if function is _nothing:
            # A stand-in of a test, for one; a class is of type `type`, Python's own.
            return type(found).__module__.partition(".")[0] not in (library, "builtins")
        return os.sep + library + os.sep not in function.__code__.co_filename

    def _module(self) -> Any:
        return sys.modules.get(self.module, MISSING)


def takes(*given: str) -> Expectation:
    """Called with so many arguments, *self* not counted; ``name=`` is passed by its name."""
    places = [one for one in given if not one.endswith("=")]
    named = {one[:-1] for one in given if one.endswith("=")}

    def wrong(found: Any) -> str:
        if not callable(found):
            return "cannot be called"
        taken = _Taken.of(found)
        if len(places) > len(taken.names) and not taken.any_number:
            return f"does not take {len(places)} arguments"
        unknown = named - {*taken.names, *taken.by_name}
        if unknown and not taken.any_name:
            return f"does not take {', '.join(sorted(unknown))}"
        missing = [one for one in taken.needed(len(places)) if one not in named]
        return f"wants {', '.join(missing)} as well" if missing else ""

    return wrong


def takes_at(place: int, name: str) -> Expectation:
    """Takes an argument of this name at this place, *self* not counted."""

    def wrong(found: Any) -> str:
        at = _Taken.of(found).names[place : place + 1]
        return "" if at == (name,) else f"does not take {name} as argument {place + 1}"

    return wrong


def mentions(*names: str) -> Expectation:
    """A function whose code uses these names or texts, as nothing else shows what it sets."""

    def wrong(found: Any) -> str:
        code = _function(found).__code__
        used = {*code.co_names, *_texts(code.co_consts)}
        missing = [name for name in names if name not in used]
        return f"does not use {', '.join(missing)}" if missing else ""

    return wrong


def has(*names: str) -> Expectation:
    """Something that has these attributes, or else these keys."""

    def wrong(found: Any) -> str:
        keys = found if isinstance(found, dict) else ()
        missing = [name for name in names if not (hasattr(found, name) or name in keys)]
        return f"has no {', '.join(missing)}" if missing else ""

    return wrong


def is_cached_property(found: Any) -> str:
    """A property whose value is kept in the instance."""
    return "" if "cached_property" in type(found).__name__ else "is no cached property"


class _Taken(NamedTuple):
    """What a function takes, in a tenth of the time that ``inspect.signature`` would want."""

    names: tuple[str, ...]
    optional: int
    by_name: tuple[str, ...]
    needed_by_name: tuple[str, ...]
    any_number: bool
    any_name: bool

    @classmethod
    def of(cls, found: Any) -> _Taken:
        function = _function(found)
        code = function.__code__
        names = code.co_varnames[: code.co_argcount]
        by_name = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        preset = function.__kwdefaults__ or {}
        return cls(
            names[1:] if names[:1] == ("self",) else names,
            len(function.__defaults__ or ()),
            by_name,
            tuple(name for name in by_name if name not in preset),
            bool(code.co_flags & inspect.CO_VARARGS),
            bool(code.co_flags & inspect.CO_VARKEYWORDS),
        )

    def needed(self, given: int) -> tuple[str, ...]:
        """What is wanted besides the first arguments, *given* in their places."""
        return self.names[given : len(self.names) - self.optional] + self.needed_by_name


def _function(found: Any) -> Any:
    function = inspect.unwrap(found)
    function = getattr(function, "__func__", function)
    # Python's own, of a class that defines none, has no code.
    return function if hasattr(function, "__code__") else _nothing


def _nothing() -> None:
    pass


def _texts(constants: Iterable[Any]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple):
            yield from _texts(constant)
