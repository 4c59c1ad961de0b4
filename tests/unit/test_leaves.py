"""The package's modules: what each may import, what its docstrings name, and its leaves."""

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest
from celery import Celery

import celery_delayq
from celery_delayq import DelayQ
from celery_delayq.contrib.consumer import look_first
from celery_delayq.core import leaves
from celery_delayq.errors import NoLeaf
from tests.types import face

# Which modules of other libraries a package may import; import-linter cannot check this.


PACKAGE = Path(celery_delayq.__file__).parent
INSIDES = re.compile(
    r"^(?:from|import) kombu\.(?:transport|messaging|serialization|compression|json)"
)


def test_kombu_s_insides_are_known_where_messages_are_made_and_sent():
    packages = {
        "/".join(path.relative_to(PACKAGE).parts[:2])
        for path in PACKAGE.glob("**/*.py")
        if path.parent.name != "testing"  # empties a test's in-memory broker
        for line in path.read_text("utf-8").splitlines()
        if INSIDES.match(line)
    }

    assert packages == {
        "contrib/canvas",
        "core/handover",
        "core/message",
        "operations/edits.py",
        "operations/patches.py",
    }


def test_each_package_opens_with_its_picture():
    packages = [*PACKAGE.glob("core/*/__init__.py"), PACKAGE / "operations" / "__init__.py"]
    assert len(packages) >= 8
    assert [one.parent.name for one in packages if "\n    " not in one.read_text("utf-8")] == []


# Each argument and attribute that a docstring of the package names exists.


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


# The core knows leaves by their names, and imports each only when it is used.


NOT_POINTS = ("FOLDER", "OPERATIONS")
POINTS = {
    one
    for name, one in vars(leaves).items()
    if name.isupper() and isinstance(one, str) and name not in NOT_POINTS
}
# These change something in an app as soon as it has a DelayQ.
AT_ONCE = {"control", "events", "putoff"}


@pytest.mark.parametrize("name", leaves.LEAVES)
def test_a_leaf_has_all_that_its_line_says(name):
    one = leaves.LEAVES[name]

    assert set(one.at) <= POINTS
    assert name == "django" or all(callable(getattr(leaves.leaf(name), at)) for at in one.at)
    assert [leaves.command(command).name for command in one.commands] == [*one.commands]
    for step in filter(None, (one.worker_step, one.consumer_step)):
        module, _, kind = step.partition(":")
        assert kind in vars(import_module(f"{leaves.FOLDER}.{one.folder}{module}"))


def test_a_leaf_that_was_taken_out_is_missed_by_its_name(monkeypatch):
    monkeypatch.delitem(leaves.LEAVES, "canvas")
    with pytest.raises(NoLeaf) as caught:
        leaves.leaf("canvas")
    assert str(caught.value) == (
        "this celery_delayq has no 'canvas': it is not in celery_delayq/core/leaves.py"
    )


def test_a_method_is_a_function_that_its_own_module_has():
    for name, method in leaves.methods().items():
        function = getattr(import_module(method.module), name)
        assert getattr(DelayQ, name) is function
        assert next(iter(inspect.signature(function).parameters)) == "delayq"


def test_a_double_of_the_class_has_the_signature_of_each_method():
    delayq = create_autospec(DelayQ)(Celery(broker="redis://"))
    delayq.undo("a", now=True)
    delayq.undo.assert_called_once_with("a", now=True)
    with pytest.raises(TypeError):
        delayq.undo_all()


def test_a_double_of_one_method_finds_it_unused():
    # mock takes what a class itself has as it stands, and asks only for what it inherits.
    assert vars(DelayQ).keys() & leaves.methods().keys() == set()


def test_only_a_call_misses_the_package_of_a_method_that_needs_one():
    program = (
        "import sys; sys.modules['cronsim'] = None; from unittest.mock import create_autospec\n"
        f"{APP}; create_autospec(DelayQ)\n"
        "try: delayq.rules()\n"
        "except ModuleNotFoundError as error: assert error.name == 'cronsim'\n"
        "else: assert False\n"
    )
    loaded_after(program)


def test_type_checkers_see_the_methods_of_each_leaf():
    text = face.FACE.read_text("utf-8")
    assert text == face.written(), "write it anew: python -m tests.types.face"


def loaded_after(program):
    """The leaves that a process has imported after these statements."""
    code = f"import sys; from celery import Celery; {program}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = {f"{leaves.FOLDER}.{one.folder}": name for name, one in leaves.LEAVES.items()}
    return {names[name] for name in done.stdout.split() if name in names}


APP = "from celery_delayq import DelayQ; delayq = DelayQ(Celery(broker='redis://'))"


@pytest.mark.parametrize(
    ("program", "loaded"),
    [
        ("import celery_delayq.operations.cli", {"control", "preflight"}),
        ("import celery_delayq.contrib.pytest", set()),
        (APP, AT_ONCE),
        (f"{APP}; delayq.scanner()", AT_ONCE | {"canvas", "rules"}),
        (f"{APP}; delayq.dump()", AT_ONCE | {"care"}),
        (f"{APP}; delayq.history(0)", AT_ONCE | {"canvas", "history", "rules"}),
        ("import celery_delayq.contrib.metrics", {"metrics"}),
    ],
)
def test_a_leaf_is_imported_when_it_is_used(program, loaded):
    assert loaded_after(program) == loaded


# The door of a worker's consumer: which leaf looks at a message first, and who takes it.


class Consumer:
    """A consumer of one task, whose strategy notes that it ran."""

    def __init__(self):
        self.seen = []
        self.strategies = {}

    def update_strategies(self):
        self.strategies["t"] = lambda *_: self.seen.append("task")

    def receive(self):
        self.strategies["t"](SimpleNamespace(), None, None)

    def let(self, leaf, *, takes=False):
        def look(*_):
            self.seen.append(leaf)
            return takes

        look_first(self, leaf, look)


@pytest.fixture
def consumer():
    return Consumer()


def test_copies_are_dropped_before_they_can_be_adopted(consumer):
    for leaf in ("adoption", "copies", "putoff"):
        consumer.let(leaf)
    consumer.update_strategies()
    consumer.receive()
    assert consumer.seen == ["putoff", "copies", "adoption", "task"]


def test_a_message_that_a_leaf_takes_goes_no_further(consumer):
    consumer.let("copies", takes=True)
    consumer.let("adoption")
    consumer.update_strategies()
    consumer.receive()
    assert consumer.seen == ["copies"]


def test_on_a_new_connection_each_leaf_looks_once(consumer):
    for _ in range(2):
        consumer.let("copies")
        consumer.update_strategies()
    consumer.receive()
    assert consumer.seen == ["copies", "task"]


def test_a_leaf_without_a_place_in_the_order_is_no_silent_one(consumer):
    consumer.let("another")
    with pytest.raises(ValueError, match="not in tuple"):
        consumer.update_strategies()
