"""Which tests a mutant meets: those that reach the change, and no fewer."""

from pathlib import Path

import pytest

from tests.lab.mutants.chosen import Chosen
from tests.lab.mutants.copies import Copy, StoppedError
from tests.lab.mutants.sites import sites

LUA = Path("celery_delayq/core/store/lua")
PATH = "celery_delayq/core/store/extras.py"
CHANGE = [each for each in sites(Path(PATH)) if each.old == "not"][1]  # in `text`


def chosen(reached, *, unsteady=()):
    tests = [["a.py::slow", 2.0], ["a.py::quick", 0.5], ["b.py::b", 0.1], ["c.py::c", 0.1]]
    return Chosen([{"tests": tests, "reached": reached}], list(unsteady))


def line_of(function):
    lines = Path(PATH).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if f"def {function}(" in line)


def test_a_change_meets_the_tests_that_enter_its_function_then_its_file_then_processes():
    reached = {f"{PATH}:{line_of('text')}": [0], f"{PATH}:1": [1], "processes": [2]}
    assert chosen(reached).tests(CHANGE) == ["a.py::slow", "a.py::quick", "b.py::b"]


def test_the_quick_ones_are_first_and_the_unsteady_ones_left_out():
    reached = {f"{PATH}:{line_of('text')}": [0, 1, 2, 3]}
    found = chosen(reached, unsteady=["c.py::c"])
    assert found.tests(CHANGE) == ["b.py::b", "a.py::quick", "a.py::slow"]
    assert found.within(found.tests(CHANGE), 0.6) == ["b.py::b", "a.py::quick"]


def test_a_change_of_the_prelude_meets_the_tests_that_call_a_script_with_that_part():
    change = next(each for each in sites(LUA / "prelude" / "marks.lua") if each.old == "or")
    reached = {"schedule.lua": [0], "arrive.lua": [1], "history.lua": [2], "processes": [3]}
    assert chosen(reached).tests(change) == ["a.py::quick", "a.py::slow", "c.py::c"]


def test_a_change_of_a_script_meets_the_tests_that_call_it():
    change = sites(LUA / "peek.lua")[0]
    assert chosen({"peek.lua": [1], "find.lua": [2]}).tests(change) == ["a.py::quick"]


def test_a_text_that_is_no_program_any_more_is_no_change(tmp_path):
    script = tmp_path / "one.lua"
    script.write_text("local a = -1\nreturn a < 2")
    assert [(each.old, each.new) for each in sites(script)] == [("1", "2"), ("<", "<="), ("2", "3")]


def test_a_run_in_a_copy_returns_the_failed_test_and_leaves_no_file(tmp_path):
    copy = Copy(tmp_path)
    test = copy.tree / "tests" / "test_one.py"
    test.write_text("import tempfile\n\ndef test_one():\n    assert not tempfile.mkdtemp()\n")
    (failed,) = copy.failures("-n", "0", str(test))
    assert failed.startswith("tests/test_one.py::test_one - AssertionError")
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]
    copy.stop()
    with pytest.raises(StoppedError):
        copy.failures("-n", "0", str(test))
