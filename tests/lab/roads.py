"""How long the road of a call is: ``./tests/run roads [--list ROAD] [--write]``.

It makes each call a few times first, so that objects made only once exist. Then it makes one more
call, and counts each start of a function or generator of the package. It needs Python 3.12 or
later; earlier ones start a comprehension as if it were a function.

It fails if a road is longer than its figures in ``roads.json``; ``--write`` writes them anew.
"""

import argparse
import ast
import json
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import get_ident
from types import CodeType

from celery.bin.celery import celery
from click.testing import CliRunner

import celery_delayq
from celery_delayq import DelayQ
from tests.support.apps import celery_state_kept, new_app
from tests.support.redis_server import RedisServer

PACKAGE = Path(celery_delayq.__file__).parent
TOOL = 2  # sys.monitoring.PROFILER_ID, which earlier Pythons lack
SHELL = "delayq_roads"  # the module of the app, for `celery -A`
WARM = 3
FAR = 3600

LONG_AGO = 1_000_000_000  # Unix time: due at once

STORED = Path(__file__).with_suffix(".json")
FIGURES = ("files", "functions", "calls")
CHAIN = "longest chain of imports"
Figures = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Road:
    """The functions of the package that one call enters, and how often."""

    entered: Counter[CodeType]

    @property
    def files(self) -> set[str]:
        return {_file_of(code) for code in self.entered}

    @property
    def figures(self) -> dict[str, int]:
        numbers = len(self.files), len(self.entered), self.entered.total()
        return dict(zip(FIGURES, numbers, strict=True))

    def __str__(self) -> str:
        return "\n".join(
            f"{times:4d}  {_file_of(code)}:{code.co_firstlineno} {_name_of(code)}"
            for code, times in self.entered.items()
        )


def _file_of(code: CodeType) -> str:
    return str(Path(code.co_filename).relative_to(PACKAGE))


def _name_of(code: CodeType) -> str:
    return code.co_qualname


def walked(call: Callable[[], object]) -> Road:
    """The road of one call, in this thread."""
    entered: Counter[CodeType] = Counter()
    own, thread = f"{PACKAGE}/", get_ident()

    def note(code: CodeType, _: int) -> None:
        if code.co_filename.startswith(own) and get_ident() == thread:
            entered[code] += 1

    monitoring = sys.monitoring
    monitoring.use_tool_id(TOOL, "roads")
    monitoring.register_callback(TOOL, monitoring.events.PY_START, note)
    monitoring.set_events(TOOL, monitoring.events.PY_START)
    try:
        kept = call()  # dropping a result does not belong to it
    finally:
        monitoring.set_events(TOOL, monitoring.events.NO_EVENTS)
        monitoring.free_tool_id(TOOL)
    del kept
    return Road(entered)


def roads(server: RedisServer) -> Iterator[tuple[str, Road]]:
    """Each road by name; the server's first database is broker and store, its second a broker."""
    url = server.url()
    app = new_app(url, delayq_shards=1)
    delayq = DelayQ(app)
    far_app = new_app(server.url(1), delayq_url=url, delayq_prefix="far", delayq_shards=1)
    far = DelayQ(far_app)
    app.set_current()
    module = types.ModuleType(SHELL)
    module.app = app
    sys.modules[SHELL] = module

    @app.task(shared=False)
    def remind(number: int) -> None: ...

    far_remind = far_app.task(name=remind.name, shared=False)(remind.run)

    def shell(*words: str) -> None:
        said = CliRunner().invoke(celery, ["-A", SHELL, "delayq", *words], prog_name="celery")
        if said.exit_code:
            raise RuntimeError(said.output)

    def tagged() -> None:
        delayq.schedule(remind.s(1), after=FAR, tags=["mine"])

    def delivered(by: DelayQ) -> None:
        if by.hand_over() != 1:
            raise RuntimeError("the hand-over did not deliver the one task")

    # For each road, its preparation and the call.
    ways: dict[str, tuple[Callable[[], object], Callable[..., object]]] = {
        "delay_for": (lambda: None, lambda _: remind.delay_for(FAR, 1)),
        "schedule_many of 1": (
            lambda: None,
            lambda _: delayq.schedule_many(remind, [((1,), {})], after=FAR),
        ),
        "reschedule": (
            lambda: remind.delay_for(FAR, 1).id,
            lambda task_id: delayq.reschedule(task_id, after=FAR + 1),
        ),
        "cancel": (lambda: remind.delay_for(FAR, 1).id, delayq.cancel),
        "get": (lambda: remind.delay_for(FAR, 1).id, delayq.get),
        "get of an unknown id": (lambda: "unknown", delayq.get),
        "cancel --tag": (tagged, lambda _: shell("cancel", "--tag", "mine", "--yes")),
        "hand_over": (
            lambda: remind.apply_async((1,), delayq_at=LONG_AGO),
            lambda _: delivered(delayq),
        ),
        "hand_over to another broker": (
            lambda: far_remind.apply_async((1,), delayq_at=LONG_AGO),
            lambda _: delivered(far),
        ),
    }
    for name, (prepared, call) in ways.items():
        for _ in range(WARM):
            call(prepared())
        there = prepared()
        yield name, walked(lambda: call(there))  # noqa: B023 - called at once
    delayq.close()
    far.close()


def longest_chain() -> list[str]:
    """The longest chain of the package's modules in which each imports the next."""
    modules = {_module_of(path): path for path in PACKAGE.rglob("*.py")}
    imported = {name: _imports(name, path, set(modules)) for name, path in modules.items()}

    @cache
    def chain(name: str) -> tuple[str, ...]:
        return (name, *max(map(chain, sorted(imported[name])), key=len, default=()))

    return list(max(map(chain, sorted(modules)), key=len))


def _module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(module: str, path: Path, modules: set[str]) -> set[str]:
    """The package's modules that one imports, at its top or later."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*above, node.module or ""] if node.level else [node.module or ""])
            base = base.rstrip(".")
            names = {f"{base}.{each.name}" for each in node.names}
            found.update(names & modules or {base})
    # The package itself imports no module before one of its names is used.
    return found & modules - {module, PACKAGE.name}


def longer(figures: Figures, allowed: Figures) -> list[str]:
    """A line for each figure that is larger than the stored one, or has none."""
    return [
        f"{name}: {value} {what}, stored are {most}"
        for name, each in figures.items()
        for what, value in each.items()
        if value > (most := allowed.get(name, {}).get(what, 0))
    ]


def table(figures: Figures, allowed: Figures) -> str:
    """The figures, each beside the stored one if that is another."""

    def cell(name: str, what: str) -> str:
        value, before = figures[name][what], allowed.get(name, {}).get(what)
        return f"{value}" if value == before else f"{value} (stored {before})"

    rows = [
        ("road", *FIGURES),
        *((name, *(cell(name, each) for each in FIGURES)) for name in figures if name != CHAIN),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, "", f"{CHAIN}: {cell(CHAIN, 'modules')}"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="./tests/run roads")
    parser.add_argument("--list", metavar="ROAD", help="print the functions that a road enters")
    parser.add_argument("--write", action="store_true", help=f"store the figures in {STORED.name}")
    wanted = parser.parse_args()
    with RedisServer() as server, celery_state_kept():
        found = dict(roads(server))
    chain = longest_chain()
    if wanted.list:
        print(found[wanted.list])
        return
    figures = {name: road.figures for name, road in found.items()}
    figures[CHAIN] = {"modules": len(chain)}
    allowed: Figures = json.loads(STORED.read_text(encoding="utf-8"))
    print(table(figures, allowed))
    print("  " + " > ".join(chain))
    if wanted.write:
        STORED.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    elif too_long := longer(figures, allowed):
        sys.exit("\n".join(["longer than stored:", *too_long]))


if __name__ == "__main__":
    main()
