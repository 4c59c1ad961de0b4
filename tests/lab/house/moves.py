"""Merges modules as the plan says, renames what clashes, and mends whatever names either.

    every file --imports and names resolved--> edits --> texts --merge--> rooms
                                                          '--paths in strings, docs, contracts

A name is followed as Python resolves it, so nothing is renamed by its looks. What the tool cannot
decide it prints, and what would go wrong silently it refuses.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from . import scopes
from .plan import Plan
from .sources import PACKAGE, Source, base_of, is_for_types, names_of

ROOT = PACKAGE.parent
TEXTS = (".py", ".md", ".toml", ".txt", ".json", ".lua", ".html")
FOLDERS = ("celery_delayq", "tests", "example_project", ".ci", ".github")
OWN = "tests/lab/house/"
LOGGER, EXPORTED = "logger", "__all__"
REFERENCE = re.compile(r":(func|class|data|exc|attr|meth):`~?(\w+)\.(\w+)`")
Edit = tuple[int, int, str]


class Refused(Exception):
    """What has to be mended by hand first."""


class Import(NamedTuple):
    """One name of a package's module as a file imports it: ``old`` whole if ``name`` is empty."""

    node: ast.ImportFrom
    alias: ast.alias
    old: str
    name: str

    @property
    def bound(self) -> str:
        return self.alias.asname or self.alias.name


class Paths(NamedTuple):
    """What old paths become: dotted, with slashes, and below a folder that docs leave out."""

    dotted: dict[str, str]
    slashed: dict[str, str]
    short: dict[str, str]


class Mover:
    """One move.

    Args:
        modules: Today's sources.
        plan: The plan.
        rooms: The modules to be made now.
        names: Names to be changed, by module and name.
    """

    def __init__(
        self,
        modules: dict[str, Source],
        plan: Plan,
        rooms: Iterable[str],
        names: dict[tuple[str, str], str],
    ) -> None:
        self.modules, self.plan, self.names = modules, plan, names
        self.rooms = {room: plan.rooms[room] for room in rooms}
        self.room_of = {name: name for name in modules}
        self.room_of |= {old: room for room, olds in self.rooms.items() for old in olds}
        self.paths = self._paths()
        self.notes: list[str] = []
        self.wrong: list[str] = []

    def run(self, heads: dict[str, tuple[str, str]]) -> list[Path]:
        """Makes the move; returns the files that were written.

        Raises:
            Refused: a local would hide a function, or two things have one name.
        """
        written: dict[Path, str] = {}
        for path in files():
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".py":
                text = self.mended(path, text)
            after = self.in_strings(path, text)
            written[path] = after
        for room, olds in self.rooms.items():
            if olds != [room]:
                paths = [self.modules[old].path for old in olds]
                made = Room(room, olds, [written.pop(path) for path in paths])
                self.wrong += made.clashes()
                head, digest = heads.get(room, (None, ""))
                if head and digest != self.digest(room):
                    self.notes.append(f"{room}: the docstrings of today are not those of its head")
                written[path_of(room)] = made.text(head)
                self.notes += made.notes
        if self.wrong:
            raise Refused("\n".join(self.wrong))
        return [*self._store(written)]

    def digest(self, room: str) -> str:
        """A digest of the docstrings of which a room's head is made."""
        trees = (self.modules[old].tree for old in self.plan.rooms[room])
        return digest_of(ast.get_docstring(tree, clean=False) for tree in trees)

    def _store(self, written: dict[Path, str]) -> Iterator[Path]:
        for olds in self.rooms.values():
            for old in olds:
                if (path := self.modules[old].path) not in written:
                    path.unlink()
                    if not [*path.parent.glob("*.py")]:
                        for each in path.parent.rglob("*.pyc"):
                            each.unlink()
        for path, text in written.items():
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
                yield path

    def mended(self, path: Path, text: str) -> str:
        """The text of a Python file with its imports and names as they are after the move."""
        tree = ast.parse(text)
        here = module_of(path)
        imports = [*self.imports(here, tree)]
        edits = Edits(text)
        found = defaultdict(list)
        for use in scopes.uses(tree):
            found[use.node.id].append(use)
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        file = File(path, here, tree, dict(found), parents, edits)
        bindings: dict[Import, str | None] = {}
        for each in imports:
            bindings[each] = self.binding(file, each, imports)
        self._rename_own(file)
        for node in dict.fromkeys(each.node for each in imports):
            self._mend_import(file, node, bindings)
        if here is not None and self.room_of[here] != here:
            self._relevel(file, {each.node for each in imports})
        return edits.applied()

    def imports(self, here: str | None, tree: ast.Module) -> Iterator[Import]:
        """The imports of this package's modules."""
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or (here is None and node.level):
                continue
            base = base_of(here or "", node)
            for alias in node.names:
                inside = f"{base}/{alias.name}".strip("/")
                if inside in self.modules:
                    yield Import(node, alias, inside, "")
                elif base in self.modules:
                    yield Import(node, alias, base, alias.name)
                elif f"{base}/__init__".strip("/") in self.modules:
                    yield Import(node, alias, f"{base}/__init__".strip("/"), alias.name)

    def binding(self, file: File, each: Import, imports: list[Import]) -> str | None:
        """Renames the uses of an import; returns the name that it binds then, None for none."""
        room = self.room_of[each.old]
        inside = file.here is not None and self.room_of[file.here] == room
        moved = inside and each.old != file.here
        new_name = self.names.get((each.old, each.name), each.name)
        last = room.removesuffix("/__init__").rpartition("/")[2]
        wanted = new_name if each.name else last
        uses = [*file.uses_of(each)]
        if moved and not each.name:
            for use in uses:
                self._replace_attribute(file, use, each)
            return None
        if moved:
            wanted = new_name
        elif each.alias.asname or wanted == each.bound:
            wanted = each.bound
        elif self._taken(file, wanted, each, imports):
            wanted = each.bound
            self.notes.append(f"{file.where(each.node)}: stays {wanted}, as {last} is taken")
        if not each.name:
            for use in uses:
                self._rename_attribute(file, use, each)
        if wanted != each.bound:
            for use in uses:
                self._refuse_if_hidden(file, use, wanted)
                file.edits.replace(use.node, wanted)
        elif moved:
            for use in uses:
                self._refuse_if_hidden(file, use, wanted)
        return None if moved else wanted

    def _taken(self, file: File, name: str, each: Import, imports: list[Import]) -> bool:
        """Whether a name stands for something else where an import or its uses are."""
        room = self.room_of[each.old]
        same = {
            alias
            for other in imports
            if self.room_of[other.old] == room and not other.name and not other.alias.asname
            for alias in [other.alias]
        }
        around = {
            scope
            for use in file.uses_of(each)
            for scope in use.around
            if not isinstance(scope, ast.ClassDef) or scope is use.around[-1]
        }
        around.add(file.scope_of(each.node))
        return any(name in scopes.bound_in(scope, same) for scope in around)

    def _replace_attribute(self, file: File, use: scopes.Use, each: Import) -> None:
        """``module.name`` becomes ``name``."""
        parent = file.parents[use.node]
        if not isinstance(parent, ast.Attribute):
            self.wrong.append(f"{file.where(use.node)}: {each.bound} is used as a value")
            return
        name = self.names.get((each.old, parent.attr), parent.attr)
        self._refuse_if_hidden(file, use, name)
        file.edits.replace(parent, name)

    def _rename_attribute(self, file: File, use: scopes.Use, each: Import) -> None:
        parent = file.parents[use.node]
        if isinstance(parent, ast.Attribute) and (each.old, parent.attr) in self.names:
            name = self.names[each.old, parent.attr]
            file.edits.add_span(parent, parent.attr, name)

    def _refuse_if_hidden(self, file: File, use: scopes.Use, name: str) -> None:
        for scope in use.around[1:]:
            if scope is use.scope and name == use.node.id:
                continue
            if isinstance(scope, ast.ClassDef) and scope is not use.around[-1]:
                continue
            if name in scopes.bound_in(scope):
                self.wrong.append(f"{file.where(use.node)}: a local {name} would hide {name}")

    def _rename_own(self, file: File) -> None:
        """Renames what the file itself defines."""
        for (module, name), new in self.names.items():
            if module != file.here:
                continue
            for use in file.uses.get(name, ()):
                if use.scope is file.tree:
                    self._refuse_if_hidden(file, use, new)
                    file.edits.replace(use.node, new)
            for node in file.tree.body:
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
                    file.edits.add_definition(node, new)

    def _mend_import(
        self, file: File, node: ast.ImportFrom, bindings: dict[Import, str | None]
    ) -> None:
        """Writes an import anew, if anything in it has moved."""
        mine = [each for each in bindings if each.node is node]
        moves = file.here is not None and self.room_of[file.here] != file.here
        if not moves and all(
            self.room_of[each.old] == each.old and (each.old, each.name) not in self.names
            for each in mine
        ):
            return
        statements: dict[str, list[str]] = defaultdict(list)
        for each in mine:
            bound = bindings[each]
            if bound is None:
                continue
            room = self.room_of[each.old].removesuffix("/__init__")
            if not room or room == "__init__":
                room = ""
            name = self.names.get((each.old, each.name), each.name)
            if not each.name:
                room, _, name = room.rpartition("/")
            said_twice = each.alias.asname == each.alias.name  # for type checkers: an export
            text = name if name == bound and not said_twice else f"{name} as {bound}"
            statements[file.from_(room, node.level, self.room_of)].append(text)
        others = [alias for alias in node.names if alias not in [each.alias for each in mine]]
        if others:
            names = [ast.unparse(each) for each in others]
            statements[ast.unparse(node).partition(" import ")[0]] += names
        lines = [f"{left} import {', '.join(dict.fromkeys(n))}" for left, n in statements.items()]
        if [ast.unparse(node)] == lines:
            return
        if not lines and is_for_types(file.parents[node]):
            lines = ["pass"]
        file.edits.replace_statement(node, lines)

    def _relevel(self, file: File, mended: set[ast.ImportFrom]) -> None:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ImportFrom) and node.level and node not in mended:
                self.wrong.append(f"{file.where(node)}: an import that leads nowhere")

    def in_strings(self, path: Path, text: str) -> str:
        """The text with paths of modules mended: dotted, with slashes, and as file names."""
        if path.relative_to(ROOT).as_posix().startswith(OWN) or not (
            self.paths.dotted or self.names
        ):
            return text
        if path.suffix != ".py" or self._replaced(path, text) == text:
            return self._replaced(path, text)
        for start, end in reversed(said(text)):
            text = text[:start] + self._replaced(path, text[start:end]) + text[end:]
        return text

    def _replaced(self, path: Path, text: str) -> str:
        dotted, slashed, short = self.paths
        if dotted:
            text = pattern(dotted, r"\.").sub(lambda g: dotted[g[0]], text)
            text = pattern(slashed, "/").sub(lambda g: slashed[g[0]], text)
        if path.is_relative_to(PACKAGE):
            text = REFERENCE.sub(lambda g: self._reference(module_of(path), g), text)
        if short and path.is_relative_to(PACKAGE):
            words = "|".join(map(re.escape, short))
            text = re.sub(rf"(?<![\w/.])({words})\.py\b", lambda g: f"{short[g[1]]}.py", text)
        return text

    def _reference(self, here: str | None, found: re.Match[str]) -> str:
        """A docstring's ``:func:`module.name``` after the move."""
        kind, module, name = found.groups()
        olds = [old for old in self.modules if old.rpartition("/")[2] == module]
        if len(olds) > 1:
            beside = f"{(here or '').rpartition('/')[0]}/{module}"
            olds = [old for old in olds if old == beside]
        if not olds:
            return found[0]
        room = self.room_of[olds[0]]
        name = self.names.get((olds[0], name), name)
        is_own = here is not None and room == self.room_of[here]
        where = "" if is_own else f"{room.removesuffix('/__init__').rpartition('/')[2]}."
        return f":{kind}:`{where}{name}`"

    def _paths(self) -> Paths:
        """What a module's old path becomes."""
        dotted, slashed, short = paths = Paths({}, {}, {})
        last = [name.rpartition("/")[2] for name in self.modules]
        for old, new in self.room_of.items():
            if old == new or old.removesuffix("/__init__") == new.removesuffix("/__init__"):
                continue
            there = new.removesuffix("/__init__")
            if "/" in old:
                dotted[old.replace("/", ".")] = there.replace("/", ".")
                slashed[old] = new
            below = old.split("/", 1)
            if below[0] == "core" and "/" in below[1]:
                short[below[1]] = new.split("/", 1)[1]
            if last.count(old.rpartition("/")[2]) == 1:
                short[old.rpartition("/")[2]] = new.rpartition("/")[2]
        return paths


def pattern(paths: dict[str, str], separator: str) -> re.Pattern[str]:
    """Matches these paths, alone or below the package's folder."""
    words = "|".join(map(re.escape, sorted(paths, key=len, reverse=True)))
    above = rf"(?<=celery_delayq{separator})|(?<=\.\./)|(?<![\w./-])"
    return re.compile(rf"(?:{above})(?:{words})(?!\w)")


def said(text: str) -> list[tuple[int, int]]:
    """Where a program's strings and comments are."""
    places = Edits(text)
    kinds = (tokenize.STRING, tokenize.COMMENT, tokenize.FSTRING_MIDDLE)
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            start, end = (places.starts[line - 1] + column for line, column in token[2:4])
            found.append((start, end))
    return found


class File(NamedTuple):
    """A Python file: its module in the package or None, its names, and the edits to it."""

    path: Path
    here: str | None
    tree: ast.Module
    uses: dict[str, list[scopes.Use]]
    parents: dict[ast.AST, ast.AST]
    edits: Edits

    def where(self, node: ast.AST) -> str:
        return f"{self.path.relative_to(ROOT)}:{node.lineno}"

    def scope_of(self, node: ast.AST) -> ast.AST:
        scope = self.parents[node]
        while not isinstance(scope, (*scopes.OWN, ast.Module)):
            scope = self.parents[scope]
        return scope

    def uses_of(self, each: Import) -> Iterator[scopes.Use]:
        """The names that an import binds."""
        scope = self.scope_of(each.node)
        for use in self.uses.get(each.bound, ()):
            if use.scope is scope:
                yield use

    def from_(self, room: str, level: int, room_of: dict[str, str]) -> str:
        """``from`` a module of the package, as this file has to say it."""
        parts = room.split("/") if room else []
        if not level or self.here is None:
            return f"from {'.'.join([PACKAGE.name, *parts])}"
        place = room_of[self.here].split("/")[:-1]
        common = 0
        while common < min(len(place), len(parts)) and place[common] == parts[common]:
            common += 1
        return f"from {'.' * (len(place) - common + 1)}{'.'.join(parts[common:])}"


class Edits:
    """Changes of a text, by line and column of syntax nodes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.edits: dict[tuple[int, int], str] = {}

    def _at(self, line: int, column: int) -> int:
        before = self.lines[line - 1].encode()[:column].decode()
        return self.starts[line - 1] + len(before)

    def span(self, node: ast.AST) -> tuple[int, int]:
        start = self._at(node.lineno, node.col_offset)
        return start, self._at(node.end_lineno, node.end_col_offset)

    def replace(self, node: ast.AST, text: str) -> None:
        self.edits[self.span(node)] = text

    def add_span(self, node: ast.Attribute, old: str, text: str) -> None:
        end = self.span(node)[1]
        self.edits[end - len(old), end] = text

    def add_definition(self, node: ast.FunctionDef | ast.ClassDef, text: str) -> None:
        start = self._at(node.lineno, node.col_offset)
        start = self.text.index(node.name, start + 4)
        self.edits[start, start + len(node.name)] = text

    def replace_statement(self, node: ast.stmt, lines: list[str]) -> None:
        """Puts statements where one was; without any, its lines go."""
        start, end = self.span(node)
        if lines:
            self.edits[start, end] = ("\n" + " " * node.col_offset).join(lines)
        else:
            self.edits[self.starts[node.lineno - 1], self.starts[node.end_lineno]] = ""

    def applied(self) -> str:
        text = self.text
        for (start, end), new in sorted(self.edits.items(), reverse=True):
            text = text[:start] + new + text[end:]
        return text


class Room:
    """Several modules that become one.

    Args:
        name: Its name.
        olds: The modules that it is made of.
        texts: Their texts, with imports and names as they shall be.
    """

    def __init__(self, name: str, olds: list[str], texts: list[str]) -> None:
        self.name, self.olds = name, olds
        self.notes: list[str] = []
        self.parts = [Part(old, text) for old, text in zip(olds, texts, strict=True)]

    def clashes(self) -> Iterator[str]:
        """Names that two parts define or import with another meaning."""
        seen: dict[str, tuple[str, str]] = {}
        for part in self.parts:
            for name, meaning in part.meanings():
                before = seen.setdefault(name, (meaning, part.old))
                if before[0] != meaning and before[1] != part.old:
                    yield f"{self.name}: {name} is of {before[1]} and of {part.old}"

        for part in self.parts:
            for other in self.parts:
                for name in sorted(part.builtins & other.defined if part is not other else ()):
                    yield f"{self.name}: {name} is a builtin in {part.old}, not in {other.old}"

    def text(self, head: str | None) -> str:
        docstring = head or self._joined()
        raw = "r" * ("\\" in docstring)
        said: set[str] = set()
        codes = [part.code(said) for part in self.parts]
        lines = [f'{raw}"""{docstring}"""', ""]
        if at_once := [part.old for part in self.parts if part.rest and not part.postpones]:
            self.notes.append(f"{self.name}: no postponed annotations, as {at_once} has none")
            lines += [each for part in self.parts for each in [*part.remarks, ""]]
        else:
            lines += ["from __future__ import annotations", ""]
        at_top: list[str] = []
        for_types: list[str] = []
        for part in self.parts:
            at_top += part.imports
        bound = {name for name, _ in imported(ast.parse("\n".join(at_top)))}
        for part in self.parts:
            for_types += [each for each in part.for_types(bound) if each not in for_types]
        lines += at_top
        if for_types:
            lines += ["", "if TYPE_CHECKING:", *for_types]
        for part in self.parts:
            lines += part.either
        if exported := {name for part in self.parts for name in part.exported}:
            lines += ["", f"__all__ = {sorted(exported)}"]
        if any(part.logs for part in self.parts):
            lines += ["", "logger = logger_of(__name__)"]
        for code in codes:
            lines += ["", "", code]
        return "\n".join(lines) + "\n"

    def _joined(self) -> str:
        """The docstrings, that of the module with the room's name first."""
        last = self.name.rpartition("/")[2]
        ordered = sorted(self.parts, key=lambda part: part.old.rpartition("/")[2] != last)
        text = "\n\n".join(part.docstring.strip() for part in ordered if part.docstring)
        if len(self.parts) > 1:
            self.notes.append(f"{self.name}: the docstrings of its parts are joined")
        return text + ("\n" if "\n" in text else "")


class Part:
    """A module that becomes a part of another one."""

    def __init__(self, old: str, text: str) -> None:
        self.old, self.text_ = old, text
        self.tree = ast.parse(text)
        self.lines = text.split("\n")
        self.docstring = ast.get_docstring(self.tree, clean=False)
        self.imports: list[str] = []
        self.types: list[ast.stmt] = []
        self.postpones = False  # its annotations are evaluated by nobody
        self.remarks: list[str] = []  # why they are not postponed
        self.either: list[str] = []  # imports that type checkers see otherwise
        self.exported: list[str] = []
        self.logs = LOGGER in {name for node in self.tree.body for name in names_of(node)}
        self.rest: list[ast.stmt] = []
        self._take_apart()

    def _take_apart(self) -> None:
        body = self.tree.body[1 if self.docstring is not None else 0 :]
        after = self.tree.body[0].end_lineno if self.docstring is not None else 0
        for number, node in enumerate(body):
            is_import = isinstance(node, (ast.Import, ast.ImportFrom))
            if not is_import and not is_for_types(node):
                self.rest = body[number:]
                break
            if is_import and getattr(node, "module", "") == "__future__":
                self.postpones = True
            elif is_import and not (self.postpones or self.imports):
                self.remarks = [each for each in self.lines[after : node.lineno - 1] if each]
                self.imports += self.lines[node.lineno - 1 : node.end_lineno]
            elif is_import:
                self.imports += self.lines[after : node.end_lineno]
            elif node.orelse:
                self.either += self.lines[node.lineno - 1 : node.end_lineno]
            else:
                self.types += node.body
            after = node.end_lineno
        self.after = after
        self.imports = [each for each in self.imports if each.strip()]

    def for_types(self, bound: set[str]) -> Iterator[str]:
        """The imports for types, without those of names that are bound anyhow."""
        for node in self.types:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                node.names = [
                    each for each in node.names if (each.asname or each.name) not in bound
                ]
                if node.names:
                    yield f"    {ast.unparse(node)}"

    def code(self, said: set[str]) -> str:
        """What follows the imports, without the logger and what an earlier part says already."""
        lines = [*self.lines[self.after :]]
        for node in self.rest:
            name = (names_of(node) or [""])[0]
            if not isinstance(node, (ast.Assign, ast.AnnAssign)):
                continue
            text = ast.unparse(node)
            if name == EXPORTED:
                self.exported = ast.literal_eval(node.value)
            if name in (LOGGER, EXPORTED) or text in said:
                for line in range(node.lineno, node.end_lineno + 1):
                    lines[line - 1 - self.after] = ""
            said.add(text)
        return "\n".join(lines).strip("\n")

    @property
    def defined(self) -> set[str]:
        return {name for node in self.tree.body for name in names_of(node)}

    @property
    def builtins(self) -> set[str]:
        """The builtins that it uses."""
        used = {use.node.id for use in scopes.uses(self.tree) if use.scope is self.tree}
        return used & {*dir(builtins)} - self.defined

    def meanings(self) -> Iterator[tuple[str, str]]:
        for node in self.tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)) or is_for_types(node):
                yield from imported(node)
            for name in names_of(node):
                if name in (LOGGER, EXPORTED):
                    continue
                is_plain = isinstance(node, (ast.Assign, ast.AnnAssign))
                yield name, ast.unparse(node) if is_plain else f"defined in {self.old}"


def imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    for each in ast.walk(node):
        if isinstance(each, ast.ImportFrom):
            for alias in each.names:
                yield alias.asname or alias.name, f"{'.' * each.level}{each.module}.{alias.name}"
        elif isinstance(each, ast.Import):
            for alias in each.names:
                top = alias.name.partition(".")[0]
                yield alias.asname or top, alias.name if alias.asname else top


def files() -> Iterator[Path]:
    """Every text that may name a module."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in TEXTS and path.is_file() and ".venv" not in path.parts:
                yield path
    yield from (ROOT / name for name in ("pyproject.toml", "README.md"))


def module_of(path: Path) -> str | None:
    """A file's module in the package, if it is one."""
    if path.is_relative_to(PACKAGE):
        return path.relative_to(PACKAGE).with_suffix("").as_posix()
    return None


def path_of(room: str) -> Path:
    return PACKAGE / f"{room}.py"


def read_heads(text: str) -> dict[str, tuple[str, str]]:
    """The docstrings of rooms, each with a digest of those of which it is made."""
    found = {}
    for block in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        first, _, head = block.partition("\n")
        name, _, digest = first.strip().partition(" ")
        head = head.strip("\n")
        found[name] = (head + ("\n" if "\n" in head else ""), digest)
    return found


def digest_of(docstrings: Iterable[str | None]) -> str:
    """A digest of docstrings, but for the modules that they name: an earlier step renames them."""
    text = re.sub(r"[\w/.]+\.py|:\w+:`.*?`", "", "\0".join(each or "" for each in docstrings))
    return hashlib.sha256(text.encode()).hexdigest()[:8]
