"""A linter of the tests: ``python -m tests.lint_tests``.

A test stands outside, so that the package can be rebuilt under it. These places reach inside:

- ``patch``: a test replaces a function, a class or a module's name of the package;
- ``limit``: a test sets a constant of the package; `support/limits.py` alone does that;
- ``private``: a test imports or names something private of the package;
- ``reply``: a test reads the reply of a script, outside `store/` and `format/`.

Connections, servers, the network and ``celery_delayq.core.clock`` may be patched. `outside.txt`
has the places that are left. It only shrinks: a place that it does not have is a problem, and so
is a line without its places. ``--write`` takes out what is gone, and adds nothing. For the core it
is empty: files with tests that are marked ``core``, the helpers beside them, and ``support/``.

A log of CI has names alone, so a test's name has its subject: none begins with a word that needs
the test before it, such as "it" or "but".
"""

import ast
import importlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "celery_delayq"
LIST = TESTS / "outside.txt"
CLOCK = "celery_delayq.core.clock"
# Instruments and what they need claim nothing.
LEFT_OUT = ("lab/", "lint_tests.py", "lint_lua.py", "support/limits.py")
WITH_REPLIES = ("store/", "format/")
# What a named tuple has; and what a test's own class gets at by the name of the class above it.
OF_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
KINDS = ("patch", "limit", "private", "reply")
# The first words of a name that leans on the test before it.
LEANING = re.compile(
    "test_(an_earlier_one|also|and|but|else|here|it|its|nor|one_that|or|others|so|that|the_others?"
    "|their|then|there|these|they|this|those)_"
)
LONGEST_NAME = 100
NETWORK = {"connect"}  # of whatever connection
PATCHES = {"setattr", "delattr", "object", "patch"}


class Place(NamedTuple):
    """Where a test reaches inside: the kind, the file, and what it reaches for."""

    kind: str
    file: str
    what: str


@cache
def names() -> dict[str, set[str]]:
    """The names that the package defines: functions and classes, constants, private ones."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found["patch"].add(node.name)
            elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                name = node.id if isinstance(node, ast.Name) else node.attr
                found["limit" if name.isupper() else "private"].add(name)
    found["private"] |= found["patch"] | found["limit"]
    found["private"] = {name for name in found["private"] if is_private(name)} - OF_TUPLES
    for path in TESTS.rglob("fakes.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found["fake"] |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    found["script"] = {path.stem for path in PACKAGE.rglob("*.lua")}
    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and name.strip("_") != "" and not name.endswith("__")


def places_in(file: str, text: str) -> Iterator[Place]:
    """The places of a test's file, each as often as it stands there."""
    tree = ast.parse(text)
    imported = dict(imports_of(tree))
    own = {
        node.name if not isinstance(node, ast.Attribute) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        or (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node))
    }
    for node in ast.walk(tree):
        found = [*patched(node, imported), *set_in(node, imported, own)]
        found += private(node, imported, own)
        yield from (Place(kind, file, what) for kind, what in found)
        if not file.startswith(WITH_REPLIES):
            yield from (Place("reply", file, script) for script in asked(node))


def imports_of(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each imported name, and what it stands for: a module, or ``module:name``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.asname or each.name, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (
                (each.asname or each.name, f"{node.module}:{each.name}") for each in node.names
            )


def is_own(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id in ("self", "cls"))
    )


def patched(node: ast.AST, imported: dict[str, str]) -> Iterator[tuple[str, str]]:
    """What a call of ``setattr`` and the like replaces."""
    if not isinstance(node, ast.Call) or not node.args:
        return
    called = ast.unparse(node.func).rpartition(".")[2]
    first, *others = node.args
    if called not in PATCHES:
        return
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        yield from judged(*first.value.rpartition(".")[::2])
    elif isinstance(first, (ast.JoinedStr, ast.Starred)):
        yield "patch", ast.unparse(first)
    elif called != "patch" and others:
        yield from judged_of(first, others[0], imported)


def set_in(node: ast.AST, imported: dict[str, str], own: set[str]) -> Iterator[tuple[str, str]]:
    """What an assignment replaces: a name of a module or class, or an object's method."""
    if not isinstance(node, ast.Assign):
        return
    for target in (each for given in node.targets for each in ast.walk(given)):
        if (
            isinstance(target, ast.Attribute)
            and isinstance(target.ctx, ast.Store)
            and not is_own(target)
        ):
            to = dotted_name(target.value, imported)
            if to and not is_foreign(to):
                yield from judged_of(target.value, ast.Constant(target.attr), imported)
            elif (
                isinstance(node.value, ast.Lambda)
                or (isinstance(node.value, ast.Name) and node.value.id in own)
            ) and target.attr in names()["patch"] - names()["fake"] - NETWORK:
                yield "patch", ast.unparse(target)


def judged_of(owner, name, imported) -> Iterator[tuple[str, str]]:
    dotted = dotted_name(owner, imported)
    if not isinstance(name, ast.Constant):
        if not is_foreign(dotted) and not ast.unparse(owner).endswith(".conf"):
            yield "patch", f"{ast.unparse(owner)}.{ast.unparse(name)}"
    elif dotted:
        yield from judged(dotted, name.value)
    else:
        yield from guessed(ast.unparse(owner), name.value)


def dotted_name(node: ast.AST, imported: dict[str, str]) -> str | None:
    """What an expression of imported names stands for, as ``module.name``; or None."""
    if isinstance(node, ast.Attribute):
        before = dotted_name(node.value, imported)
        return before and f"{before}.{node.attr}"
    if isinstance(node, ast.Name) and node.id in imported:
        return imported[node.id].replace(":", ".")
    return None


def is_foreign(dotted: str | None) -> bool:
    return bool(dotted) and dotted.split(".")[0] != "celery_delayq"


def judged(dotted: str, name: str) -> Iterator[tuple[str, str]]:
    """What it is to replace the *name* of that module or class."""
    if is_foreign(dotted):
        return
    try:
        owner = found(dotted)
    except AttributeError:  # a fixture that is called as a module is
        yield from guessed(dotted, name)
        return
    if isinstance(owner, ModuleType) and owner.__name__ == CLOCK:
        return
    module = getattr(owner, "__module__", None) or owner.__name__
    if module.split(".")[0] != "celery_delayq":
        return
    short = f"{dotted.removeprefix('celery_delayq.')}.{name}"
    yield kind_of(name, getattr(owner, name, None)), short


def found(dotted: str) -> object:
    """The module, class or instance of the package with that name."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            owner = getattr(owner, part)
        return owner
    raise LookupError(dotted)


def kind_of(name: str, value: object) -> str:
    return "limit" if name.strip("_").isupper() and not isinstance(value, type) else "patch"


def guessed(owner: str, name: str) -> Iterator[tuple[str, str]]:
    """The same where only the name says whether it is one of the package's."""
    if name in names()["patch"]:
        yield "patch", f"{owner}.{name}"
    elif name in names()["limit"]:
        yield "limit", f"{owner}.{name}"


def private(node: ast.AST, imported: dict[str, str], own: set[str]) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("celery_delayq"):
        parts = (*node.module.split("."), *(each.name for each in node.names))
        yield from (("private", part) for part in parts if is_private(part))
    elif isinstance(node, ast.Attribute) and node.attr in names()["private"] - own:
        dotted = dotted_name(node, imported)
        if not is_own(node) and not is_foreign(dotted):
            yield "private", node.attr


def asked(node: ast.AST) -> Iterator[str]:
    """The script whose reply a call reads."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "call"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value in names()["script"]
    ):
        yield node.args[0].value


def places() -> Counter[Place]:
    """All places of all tests."""
    counted: Counter[Place] = Counter()
    for path in sorted(TESTS.rglob("*.py")):
        file = path.relative_to(TESTS).as_posix()
        if not file.startswith(LEFT_OUT):
            counted.update(places_in(file, path.read_text(encoding="utf-8")))
    return counted


LINE = re.compile(r"(patch|limit|private|reply) (\S+) (.+?)(?: x(\d+))?")
HEAD = """\
# Where tests still reach into the package: kind, file and what they reach for; see lint_tests.py.
# A line goes with its places: `python -m tests.lint_tests --write`. No line comes.
"""


def listed(text: str) -> Counter[Place]:
    """The places that the text of `outside.txt` allows."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    matches = [LINE.fullmatch(line) for line in lines]
    return Counter({Place(*match.groups()[:3]): int(match[4] or 1) for match in matches})


def text_of(counted: Counter[Place]) -> str:
    return HEAD + "".join(
        f"{' '.join(place)}{f' x{times}' * (times > 1)}\n"
        for place, times in sorted(counted.items())
    )


def names_alone(file: str, text: str) -> Iterator[str]:
    """What is wrong with the names of a file's tests, a line each."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if LEANING.match(node.name):
                yield f"{file}: {node.name}: begins with a word that needs the test before it"
            elif node.name.startswith("test_") and len(node.name) > LONGEST_NAME:
                yield f"{file}: {node.name}: longer than {LONGEST_NAME} characters"


def names_of_tests() -> Iterator[str]:
    """The same of all tests."""
    for path in sorted(TESTS.rglob("*.py")):
        yield from names_alone(path.relative_to(TESTS).as_posix(), path.read_text(encoding="utf-8"))


def in_core(file: str) -> bool:
    """Whether a test marked ``core`` is in that file, or uses it: a helper beside such tests."""
    path = TESTS / file
    beside = [path] if path.name.startswith("test_") else path.parent.glob("test_*.py")
    return path.parent in (TESTS, TESTS / "support") or any(
        one.is_file() and "mark.core" in one.read_text(encoding="utf-8") for one in beside
    )


def problems(seen: Counter[Place], allowed: Counter[Place]) -> Iterator[str]:
    """What is wrong, a line each."""
    for place, times in sorted((seen - allowed).items()):
        yield f"{place.file}: {place.kind}: {place.what}: {times} more than in {LIST.name}"
    for place, times in sorted((allowed - seen).items()):
        yield f"{place.file}: {place.kind}: {place.what}: {times} less than in {LIST.name}: --write"
    for place in sorted(allowed):
        if in_core(place.file):
            yield f"{place.file}: {place.kind}: {place.what}: a test of the core stands outside"


def main(options: list[str]) -> int:
    """Print the problems; with ``--write``, take out of the list what is gone."""
    seen, allowed = places(), listed(LIST.read_text(encoding="utf-8"))
    if "--write" in options:
        allowed &= seen
        LIST.write_text(text_of(allowed), encoding="utf-8")
    found = [*problems(seen, allowed), *names_of_tests()]
    kinds = Counter()
    for place, times in seen.items():
        kinds[place.kind] += times
    figures = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS)
    print(*found, f"places inside: {figures}; {len(found)} problems", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
