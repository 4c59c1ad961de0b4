"""Each argument and attribute that a docstring of the package names exists.

They stand as ``*name*``, or begin a line of "Args" or "Attributes". The names are those of the
function, class or module, and of what is around it.
"""

import ast
import re
from pathlib import Path

import celery_delayq

PACKAGE = Path(celery_delayq.__file__).parent
TREES = {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
CLASSES = {
    node.name: node
    for tree in TREES.values()
    for node in ast.walk(tree)
    if isinstance(node, ast.ClassDef)
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IN_A_SENTENCE = re.compile(r"(?<![\w*`])\*(\w+)\*(?![\w*`])")
SECTION = re.compile(r"^(?:Args|Attributes):\n((?: {4}.*\n|\n)+)", re.MULTILINE)
IN_A_SECTION = re.compile(r"^ {4}\*{0,2}(\w+(?:, \w+)*):", re.MULTILINE)


def named(docstring):
    """The arguments and attributes that a docstring names."""
    yield from IN_A_SENTENCE.findall(docstring)
    for section in SECTION.findall(f"{docstring}\n"):
        for names in IN_A_SECTION.findall(section):
            yield from names.split(", ")


def own_names(node):
    """The parameters of a function, the attributes of a class, or the names of a module."""
    if isinstance(node, FUNCTIONS):
        given = node.args
        bundles = [one for one in (given.vararg, given.kwarg) if one is not None]
        yield from (one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs))
        yield from (one.arg for one in bundles)
        yield from (name for one in bundles for name in unpacked(one.annotation))
        return
    for child in node.body:
        yield from bound(child)
        if isinstance(node, ast.ClassDef) and isinstance(child, FUNCTIONS):
            yield from own_names(child) if child.name in ("__init__", "__new__") else ()
            yield from set_in(child)


def bound(statement):
    """The names that a statement binds where it stands."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        yield statement.name
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    yield from (one.id for one in targets if isinstance(one, ast.Name))


def set_in(method):
    """The attributes of ``self`` that a method sets."""
    for one in ast.walk(method):
        if isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self":
            yield one.attr


def unpacked(annotation):
    """The arguments behind ``**options: Unpack[Options]``."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Unpack":
        yield from own_names(CLASSES[annotation.slice.id])


def unknown(node, around=frozenset()):
    """Each name in a docstring of *node*, or of what is in it, that nothing there has."""
    if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)):
        around |= {*own_names(node)}
        missing = {*named(ast.get_docstring(node) or "")} - around
        yield from ((getattr(node, "name", "the module"), name) for name in sorted(missing))
    for child in ast.iter_child_nodes(node):
        yield from unknown(child, around)


def test_each_argument_and_attribute_that_a_docstring_names_exists():
    found = {str(path.relative_to(PACKAGE)): [*unknown(tree)] for path, tree in TREES.items()}
    assert {path: names for path, names in found.items() if names} == {}


RENAMED = '''
class Counter:
    """Count to *most*, from *least*.

    Attributes:
        step: Between two numbers.
        stride: The same.
    """

    def __init__(self, most):
        self.step = 1

    def told(self, sentence, **options: "Any"):
        """Tell the *sentence*, as *told*, with **bold** and ``*literal*``.

        Args:
            said: The sentence.
            **options: More.
        """
'''


def test_a_name_that_a_rename_left_in_a_docstring_is_found():
    assert [*unknown(ast.parse(RENAMED))] == [
        ("Counter", "least"),
        ("Counter", "stride"),
        ("told", "said"),
    ]
