"""A text as Lua 5.1 compiles it: of each function its locals, outer locals and globals.

This reads what `string.dump` returns, so names are resolved and counted as Lua does it.
"""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from lupa.lua51 import LuaError, LuaRuntime

DUMP = b"function(text) return string.dump(assert(loadstring(text, '=line'))) end"
HEADER = b"\x1bLuaQ\0\1\4\x08\4\x08\0"  # little-endian, 64 bits
GETGLOBAL, SETGLOBAL, SETUPVAL = 5, 7, 8
NIL, BOOLEAN, NUMBER, TEXT = 0, 1, 3, 4


@dataclass(frozen=True)
class Function:
    """A function, or the whole text.

    Attributes:
        line: Where it begins; 0 for the whole text.
        named: Its locals, parameters and loop variables, in order.
        locals: How many of them it has at once, at most. Lua allows 200.
        outer: The outer locals that it and the functions in it use. Lua allows 60.
        globals: The globals that it reads or assigns.
        assigned: The globals and outer locals that it assigns.
        inside: The functions in it.
    """

    line: int
    named: list[str]
    locals: int
    outer: list[str]
    globals: set[str]
    assigned: set[str]
    inside: list["Function"]

    def all(self) -> Iterator["Function"]:
        """Yield it, and all functions in it."""
        yield self
        for one in self.inside:
            yield from one.all()


def compiled(text: str) -> Function:
    """Return what Lua makes of a text.

    Raises:
        ValueError: it is no Lua.
    """
    try:
        dump = io.BytesIO(LuaRuntime(encoding=None).eval(DUMP)(text.encode()))
    except LuaError as error:
        raise ValueError(str(error).partition("\n")[0]) from error
    assert dump.read(len(HEADER)) == HEADER
    return _function(dump)


def _function(dump: io.BytesIO) -> Function:
    _text(dump)
    line = _number(dump)
    dump.read(4 + 4)  # its last line; how many outer locals, parameters and registers it has
    code = _numbers(dump)
    constants = [_constant(dump) for _ in range(_number(dump))]
    inside = [_function(dump) for _ in range(_number(dump))]
    _numbers(dump)  # the line of each instruction
    spans = [(_text(dump), _number(dump), _number(dump)) for _ in range(_number(dump))]
    outer = [_text(dump) for _ in range(_number(dump))]

    def used(*operations: int) -> set[str]:
        return {constants[one >> 14] for one in code if one & 63 in operations}

    return Function(
        line=line,
        named=[name for name, _, _ in spans if not name.startswith("(")],  # a loop's own ones
        locals=max((sum(a <= at < b for _, a, b in spans) for _, at, _ in spans), default=0),
        outer=outer,
        globals=used(GETGLOBAL, SETGLOBAL),
        assigned=used(SETGLOBAL) | {outer[one >> 23] for one in code if one & 63 == SETUPVAL},
        inside=inside,
    )


def _number(dump: io.BytesIO) -> int:
    return int.from_bytes(dump.read(4), "little")


def _numbers(dump: io.BytesIO) -> tuple[int, ...]:
    count = _number(dump)
    return struct.unpack(f"<{count}I", dump.read(4 * count))


def _text(dump: io.BytesIO) -> str:
    return dump.read(int.from_bytes(dump.read(8), "little"))[:-1].decode("latin-1")


def _constant(dump: io.BytesIO) -> str:
    kind = dump.read(1)[0]
    if kind == TEXT:
        return _text(dump)
    dump.read({NIL: 0, BOOLEAN: 1, NUMBER: 8}[kind])
    return ""
