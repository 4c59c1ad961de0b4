"""How long the road of a call is: ``./tests/run roads [--json FILE] [--list ROAD]``.

It makes each call a few times first, so that objects made only once exist. Then it makes one more
call, and the interpreter's profiler records each function of the package that this call enters. A
generator is entered again for each value.
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
from types import CodeType, FrameType

from celery.bin.celery import celery
from click.testing import CliRunner

import celery_delayq
from celery_delayq import DelayQ
from tests.support.apps import celery_state_kept, new_app
from tests.support.redis_server import RedisServer

PACKAGE = Path(celery_delayq.__file__).parent
SHELL = "delayq_roads"  # the module of the app, for `celery -A`
WARM = 3
FAR = 3600

# The maximum of files, functions and calls on a road, and of modules in a chain.
GOALS = {
    "delay_for": (16, 75, 110),
    "cancel": (12, None, None),
    "cancel --tag": (28, None, None),
}
GOAL_OF_CHAIN = 18


@dataclass(frozen=True)
class Road:
    """The functions of the package that one call enters, and how often."""

    entered: Counter[CodeType]

    @property
    def files(self) -> set[str]:
        return {_file_of(code) for code in self.entered}

    @property
    def figures(self) -> tuple[int, int, int]:
        """Files, functions, calls."""
        return len(self.files), len(self.entered), self.entered.total()

    def __str__(self) -> str:
        return "\n".join(
            f"{times:4d}  {_file_of(code)}:{code.co_firstlineno} {_name_of(code)}"
            for code, times in self.entered.items()
        )


def _file_of(code: CodeType) -> str:
    return str(Path(code.co_filename).relative_to(PACKAGE))


def _name_of(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)  # from Python 3.11 on with its class


def walked(call: Callable[[], object]) -> Road:
    """The road of one call, in this thread."""
    entered: Counter[CodeType] = Counter()
    own = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(own):
            entered[frame.f_code] += 1

    sys.setprofile(note)
    try:
        kept = call()  # dropping a result does not belong to it
    finally:
        sys.setprofile(None)
    del kept
    return Road(entered)


def roads(url: str) -> Iterator[tuple[str, Road]]:
    """Each road by name, with the Redis at *url* as broker and store."""
    app = new_app(url)
    delayq = DelayQ(app)
    module = types.ModuleType(SHELL)
    module.app = app
    sys.modules[SHELL] = module

    @app.task
    def remind(number: int) -> None: ...

    def shell(*words: str) -> None:
        said = CliRunner().invoke(celery, ["-A", SHELL, "delayq", *words], prog_name="celery")
        if said.exit_code:
            raise RuntimeError(said.output)

    def tagged() -> None:
        delayq.schedule(remind.s(1), after=FAR, tags=["mine"])

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
        "cancel --tag": (tagged, lambda _: shell("cancel", "--tag", "mine", "--yes")),
    }
    for name, (prepared, call) in ways.items():
        for _ in range(WARM):
            call(prepared())
        there = prepared()
        yield name, walked(lambda: call(there))  # noqa: B023 - called at once
    delayq.close()


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


def _cell(value: int, goal: int | None) -> str:
    return f"{value}" if goal is None else f"{value} (goal {goal})"


def table(found: dict[str, Road], chain: list[str]) -> str:
    """The figures, beside their limits."""
    rows = [("road", "files", "functions", "calls")]
    for name, road in found.items():
        goals = GOALS.get(name, (None, None, None))
        cells = (_cell(*pair) for pair in zip(road.figures, goals, strict=True))
        rows.append((name, *cells))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    links = _cell(len(chain), GOAL_OF_CHAIN)
    return "\n".join([*lines, "", f"longest chain of imports: {links}", "  " + " > ".join(chain)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="./tests/run roads")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--list", metavar="ROAD", help="print the functions that a road enters")
    wanted = parser.parse_args()
    with RedisServer() as server, celery_state_kept():
        found = dict(roads(server.url()))
    chain = longest_chain()
    print(found[wanted.list] if wanted.list else table(found, chain))
    if wanted.json:
        names = ("files", "functions", "calls")
        figures = {
            name: dict(zip(names, road.figures, strict=True)) for name, road in found.items()
        }
        text = json.dumps({"roads": figures, "imports": chain}, indent=2)
        wanted.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
