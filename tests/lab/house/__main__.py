"""``python -m tests.lab.house check | table | edges | road | rename | step | heads``."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from statistics import median

from . import checks, moves, plan
from .checks import House
from .plan import Plan
from .sources import NAMED, PACKAGE, RUN, Source, sources

SMALL, LARGE = 80, 800  # lines
FEW = 30
HEADS = plan.HOUSE.with_name("heads.txt")
PATCHES = plan.HOUSE.with_name("patches")
LOADED = "DelayQ(app) loads"
PROGRAM = """
import json, sys
from celery import Celery
from celery_delayq import DelayQ
DelayQ(Celery(broker="redis://", set_as_current=False))
own = {name: module.__file__ for name, module in sys.modules.items() if "celery_delayq" in name}
print(json.dumps(sorted(own.values())))
"""


def walked() -> dict[str, list[str]]:
    """The modules of today that each road enters, and those that ``DelayQ(app)`` loads."""
    # Only now: a step must do without a package that can be imported.
    from tests.lab.roads import roads
    from tests.support.apps import celery_state_kept
    from tests.support.redis_server import RedisServer

    with RedisServer() as server, celery_state_kept():
        found = {name: sorted(road.files) for name, road in roads(server)}
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    found[LOADED] = [each.removeprefix(f"{PACKAGE}/") for each in json.loads(said.stdout)]
    return {name: [each.removesuffix(".py") for each in files] for name, files in found.items()}


def listed(title: str, found: Iterable[object]) -> None:
    print(f"{title}:", *(list(found) or ["none"]), sep="\n  ")


def report(title: str, house: House, layers: list[str], entered: dict[str, list[str]]) -> int:
    """Prints a house; returns how many circles and broken layers it has."""
    sizes = {name: house.lines(name) for name in house.plain}
    print(
        f"== {title}: {len(sizes)} modules, {sum(name.startswith('core/') for name in sizes)} of "
        f"them in the core; {sum(sizes.values())} lines, median {median(sizes.values()):.0f}"
    )
    for bound, found in (
        (f"under {SMALL}", [f"{n} {s}" for n, s in sizes.items() if s < SMALL]),
        (f"over {LARGE}", [f"{n} {s}" for n, s in sizes.items() if s > LARGE]),
    ):
        print(f"{bound}:", ", ".join(found or ["none"]) if len(found) < FEW else len(found))
    whole = house.whole()
    wrong = [f"at the top: {' '.join(each)}" for each in checks.circles(house.graph(RUN, NAMED))]
    wrong += [f"with late ones and types: {' '.join(each)}" for each in checks.circles(whole)]
    wrong += [
        f"of siblings in {folder or 'the package'}: {' '.join(each)}"
        for folder, each in checks.circles_of_siblings(whole)
    ]
    listed("circles", wrong)
    up = [each for line in layers for each in checks.broken(house, line)]
    listed("imports that break a layer", up)
    if not wrong:
        chain = checks.longest_chain(whole)
        print(f"longest chain of imports: {len(chain)}:", " > ".join(chain))
    for name, olds in entered.items():
        rooms = checks.loaded(house, olds) if name == LOADED else {house.room_of[o] for o in olds}
        print(f"{name}: {len(rooms)} modules")
    return len(wrong) + len(up)


def check(today: House, draft: House, layers: list[str], entered: dict[str, list[str]]) -> int:
    report("today", today, [], entered)
    wrong = report("planned", draft, layers, entered)
    listed("no longer imported late", checks.no_longer_late(today, draft))
    listed("import more by name", checks.reach_more(today, draft))
    if LOADED in entered:
        always = checks.packages(today, entered[LOADED])
        listed("need an optional package more", checks.need_more(today, draft, always))
    listed(
        "names that clash",
        (
            f"{room}: {name} ({', '.join(sorted(where))})"
            for room in draft.plain
            for name, where in sorted(draft.clashes(room).items())
            if len(draft.rooms[room]) > 1
        ),
    )
    listed(
        "locals that would hide a function",
        sorted({each for room in draft.rooms for each in draft.hidden(room)}),
    )
    return wrong


def table(draft: House, hides: dict[str, str]) -> None:
    for room in draft.plain:
        folder, _, name = room.rpartition("/")
        olds = " ".join(old.removeprefix(f"{folder}/") for old in draft.rooms[room])
        public = {
            each
            for old in draft.rooms[room]
            for each in draft.modules[old].defined
            if not each.startswith("_") and each != "logger"
        }
        cells = [folder, f"`{name}`", olds, draft.lines(room)]
        cells += [f"{len(public)}/{len(draft.used[room])}", hides.get(room, "")]
        print("|", " | ".join(map(str, cells)), "|")


def edges(draft: House, here: str, there: str) -> None:
    for kind, found in draft.edges.items():
        for (a, b), why in sorted(found.items()):
            if a.startswith(here) and b.startswith(there):
                listed(f"{kind}: {a} -> {b}", sorted(why))


def step(modules: dict[str, Source], house: Plan, name: str) -> None:
    """Makes the modules of a step, says so in the plan, and applies its patch."""
    what = house.steps.get(name, [name])
    rooms = [room for room in house.rooms if any(f"{room}/".startswith(f"{w}/") for w in what)]
    docstrings = moves.read_heads(HEADS.read_text(encoding="utf-8"))
    carry_out(moves.Mover(modules, house, rooms, {}), docstrings)
    text = plan.HOUSE.read_text(encoding="utf-8")
    plan.HOUSE.write_text(plan.moved(text, rooms), encoding="utf-8")
    patched(name)


def patched(name: str) -> None:
    """Applies what a step needs beside the moves; conflicts stay in the files."""
    patch = PATCHES / f"{name}.patch"
    if patch.exists():
        subprocess.run(["git", "add", "--all"], cwd=moves.ROOT, check=True)
        words = ["git", "apply", "--3way", "--recount", str(patch)]
        subprocess.run(words, cwd=moves.ROOT, check=False)


def heads(modules: dict[str, Source], house: Plan) -> None:
    """Writes the digests of the docstrings anew."""
    mover = moves.Mover(modules, house, (), {})
    text = HEADS.read_text(encoding="utf-8")
    for room, olds in house.rooms.items():
        if olds != [room]:
            digest = mover.digest(room)
            text = re.sub(rf"^== {room}( .*)?$", f"== {room} {digest}", text, flags=re.MULTILINE)
    HEADS.write_text(text, encoding="utf-8")


def rename(house: Plan) -> None:
    patched("names")
    modules = sources()
    carry_out(moves.Mover(modules, house, (), house.names), {})
    lines = plan.HOUSE.read_text(encoding="utf-8").splitlines(keepends=True)
    rest = "".join(line for line in lines if not line.startswith("name "))
    plan.HOUSE.write_text(rest, encoding="utf-8")


def carry_out(mover: moves.Mover, docstrings: dict[str, tuple[str, str]]) -> None:
    try:
        written = mover.run(docstrings)
    except moves.Refused as refused:
        sys.exit(f"nothing was written:\n{refused}")
    files = [str(path) for path in written if path.suffix == ".py"]
    ruff = [sys.executable, "-m", "ruff"]
    fix = [*ruff, "check", "--quiet", "--fix", "--select", "I,F401,F811,RUF022", *files]
    subprocess.run(fix, check=False)
    subprocess.run([*ruff, "format", "--quiet", *files], check=True)
    listed("to be looked at", mover.notes)
    print(f"{len(written)} files written")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.house")
    what = parser.add_subparsers(dest="what", required=True)
    asked = what.add_parser("check", help="circles, layers, chain, clashes; today and as planned")
    asked.add_argument("--roads", action="store_true", help="the roads, too; needs a Redis")
    what.add_parser("table", help="a row for each module as planned")
    asked = what.add_parser("edges", help="the imports between modules as planned")
    asked.add_argument("here", metavar="FROM", help="a prefix")
    asked.add_argument("there", metavar="TO", help="a prefix")
    asked = what.add_parser("road", help="the modules as planned that a road enters")
    asked.add_argument("name")
    asked = what.add_parser("step", help="make the modules of a step as planned")
    asked.add_argument("name", help="a step's name, a planned module, or a folder")
    what.add_parser("heads", help="the docstrings in heads.txt fit those of today")
    what.add_parser("rename", help="give clashing names the better ones of the plan")
    wanted = parser.parse_args()
    text = plan.HOUSE.read_text(encoding="utf-8")
    house, modules = plan.read(text), sources()
    if problems := plan.problems(house, modules):
        sys.exit("\n".join(problems))
    draft = House(modules, house.room_of(modules), house.also)
    ways: dict[str, Callable[[], object]] = {
        "check": lambda: check(
            House(modules, {}, house.also), draft, house.layers, walked() if wanted.roads else {}
        ),
        "table": lambda: table(draft, house.hides),
        "edges": lambda: edges(draft, wanted.here, wanted.there),
        "step": lambda: step(modules, house, wanted.name),
        "heads": lambda: heads(modules, house),
        "rename": lambda: rename(house),
        "road": lambda: print(
            *sorted({draft.room_of[old] for old in walked()[wanted.name]}), sep="\n"
        ),
    }
    return 1 if ways[wanted.what]() else 0


if __name__ == "__main__":
    sys.exit(main())
