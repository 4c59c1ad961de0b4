"""``house.txt``: a line for each module as it shall be, and rules for the whole.

    core/clock = core/zones core/clock | any form of a time becomes the store's milliseconds
    layers contrib > operations > core      each row imports only from the rows behind it
    also core/integration/delayq -> contrib/undo/methods      imported by name, at the top
    name core/store/holder.find = holder_of   a better name for one of two that would clash
    step store core/store                   what is moved at once

Modules on one row of layers do not know each other, unless colons stand between them.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

HOUSE = Path(__file__).with_name("house.txt")


class Plan(NamedTuple):
    """What ``house.txt`` says.

    Attributes:
        rooms: Each module as it shall be, with those of today that it is made of, in their order.
        hides: The decision that each of them hides.
        layers: The lines of layers.
        also: Imports by name, at the top of a module: from and to, of today.
        names: Names that clash, by module and name, with better ones.
        steps: What is moved at once, by the step's name: modules as they shall be, or folders.
    """

    rooms: dict[str, list[str]]
    hides: dict[str, str]
    layers: list[str]
    also: list[tuple[str, str]]
    names: dict[tuple[str, str], str]
    steps: dict[str, list[str]]

    def room_of(self, modules: Container[str]) -> dict[str, str]:
        """Each module of today, with the one that it becomes."""
        return {old: new for new, olds in self.rooms.items() for old in olds if old in modules}


def read(text: str) -> Plan:
    plan = Plan({}, {}, [], [], {}, {})
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "layers":
            plan.layers.append(rest)
        elif word == "also":
            here, _, there = rest.partition("->")
            plan.also.extend((here.strip(), each) for each in there.split())
        elif word == "step":
            name, *what = rest.split()
            plan.steps[name] = what
        elif word == "name":
            old, _, new = rest.partition(" = ")
            module, _, name = old.partition(".")
            plan.names[module, name] = new
        elif word and word != "#":
            left, _, hides = line.partition(" | ")
            new, _, olds = left.partition(" = ")
            plan.rooms[new] = olds.split()
            plan.hides[new] = hides
    return plan


def problems(plan: Plan, modules: Container[str]) -> list[str]:
    """What of today's modules the plan leaves out, names twice, or invents."""
    named = [old for olds in plan.rooms.values() for old in olds]
    found = [f"{each} is named twice" for each in sorted({n for n in named if named.count(n) > 1})]
    found += [f"{each} is no module" for each in named if each not in modules]
    return found + [
        f"{each} is in no line"
        for each in modules
        if each not in named and not each.endswith("__init__")
    ]


def moved(text: str, rooms: Container[str]) -> str:
    """The text once these modules have been made: each consists of itself."""
    room_of = {old: new for new, olds in read(text).rooms.items() if new in rooms for old in olds}
    lines = []
    for line in text.splitlines():
        new, equals, rest = line.partition(" = ")
        if equals and new in rooms:
            lines.append(f"{new} = {new} | {rest.partition(' | ')[2]}")
        elif line.startswith("also "):
            lines.append(" ".join(room_of.get(word, word) for word in line.split()))
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"
