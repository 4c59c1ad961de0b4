"""Which tests a mutant meets, how long a result holds, and what the report says."""

import argparse
from pathlib import Path

import pytest

from tests.lab.mutants import __main__ as mutants
from tests.lab.mutants import known, report
from tests.lab.mutants.chosen import Chosen
from tests.lab.mutants.copies import HANGS, SO_FAR, Copy, StoppedError
from tests.lab.mutants.sites import sites

LUA = Path("celery_delayq/core/store/lua")
SECONDS = {"a.py::slow": 2.0, "a.py::quick": 0.5, "b.py::b": 0.1, "c.py::c": 0.1}
MODULE = """\
def first(value):
    return value < 1


def second(value):
    return not value
"""


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    return path


@pytest.fixture
def change(module):
    return next(each for each in sites(module) if each.old == "not")


def chosen(**places):
    """Tests that reach these places: ``a_quick=["x.lua"]`` for ``a.py::quick``."""
    reached = {name.replace("_", ".py::"): each for name, each in places.items()}
    return Chosen({name: (SECONDS[name], reached.get(name, [])) for name in SECONDS})


def test_a_change_meets_the_tests_that_enter_its_function_then_its_file_then_processes(
    module, change
):
    found = chosen(a_slow=[f"{module}:5"], a_quick=[f"{module}:1"], b_b=["processes"])
    assert found.tests(change) == ["a.py::slow", "a.py::quick", "b.py::b"]


def test_the_quick_tests_are_first_and_of_these_those_of_files_that_enter_the_least(module, change):
    there = [f"{module}:5"]
    found = chosen(a_slow=there, a_quick=[*there, "other.py:1"], b_b=there)
    assert found.tests(change) == ["b.py::b", "a.py::quick", "a.py::slow"]
    assert found.within(found.tests(change), 0.6) == ["b.py::b", "a.py::quick"]


def test_a_change_of_the_prelude_meets_the_tests_that_call_a_script_with_that_part():
    change = next(each for each in sites(LUA / "prelude" / "marks.lua") if each.old == "or")
    found = chosen(
        a_slow=["schedule.lua"], a_quick=["arrive.lua"], b_b=["history.lua"], c_c=["processes"]
    )
    assert found.tests(change) == ["a.py::quick", "a.py::slow", "c.py::c"]


def test_a_change_of_a_script_meets_the_tests_that_call_it():
    change = sites(LUA / "peek.lua")[0]
    assert chosen(a_quick=["peek.lua"], b_b=["find.lua"]).tests(change) == ["a.py::quick"]


def test_a_module_s_own_files_are_those_of_its_name_that_reach_it():
    reached = ["package/clock.py:1"]
    names = "test_clock.py", "test_clock_foreign.py", "test_clocks.py", "test_all.py"
    found = Chosen({f"tests/{name}::test_it": (1, reached) for name in names})
    assert found.own_files("package/clock.py", []) == [
        "tests/test_clock.py",
        "tests/test_clock_foreign.py",
    ]


def test_a_module_without_own_files_has_the_three_that_are_most_about_it():
    here, there = ["package/clock.py:1", "package/clock.py:9"], ["package/other.py:1"]
    reached = {
        "all": [here + there],
        "both": [here],
        "half": [here, there],
        "one": [here[:1], there],
    }
    reached["no"] = [there]
    found = Chosen(
        {
            f"tests/test_{name}.py::test_{number}": (1, places)
            for name, tests in reached.items()
            for number, places in enumerate(tests)
        }
    )
    assert found.own_files("package/clock.py", []) == [
        f"tests/test_{name}.py" for name in ("both", "all", "half")
    ]


def test_a_text_that_is_no_program_any_more_is_no_change(tmp_path):
    script = tmp_path / "one.lua"
    script.write_text("local a = -1\nreturn a < 2")
    assert [(each.old, each.new) for each in sites(script)] == [("1", "2"), ("<", "<="), ("2", "3")]


def test_the_changes_drawn_stay_the_same_if_lines_or_other_changes_come_before_them(module):
    before = mutants.drawn(list(mutants.places([module])), 2, seed=1)
    module.write_text(f"A = True\n\n\n{MODULE}")
    after = mutants.places([module])
    assert len(after) == 4
    assert [each for each in mutants.drawn(list(after), 4, seed=1) if "A =" not in each][
        :2
    ] == before


class FakeCopy:
    """Fails these tests for the change, where it runs them."""

    def __init__(self, tree, *failing):
        self.tree, self.failing, self.ran = tree, failing, []

    def failures(self, *arguments, seconds):
        tests = (self.tree / "names.txt").read_text().splitlines()
        self.ran.append(tests)
        found = [f"{each} - Error" for each in tests if each in self.failing]
        return found[:1] if "-x" in arguments else found


@pytest.fixture
def tried(module, change, monkeypatch):
    """The result of a change for which these tests fail, and the runs of tests."""
    monkeypatch.setattr(known, "CACHE", module.parent)
    there = [f"{module}:5"]
    tests = chosen(a_slow=there, a_quick=there, b_b=there, c_c=there)

    def result(*failing, by_file=True):
        asked = argparse.Namespace(minutes=1, seconds=10, by_file=by_file)
        results = known.Results("results", 10, whole=by_file)
        trial = mutants.Trial(tests, results, asked)
        copy = FakeCopy(module.parent, *failing)
        trial.copies.put(copy)
        return trial.row("a change", change, ["a.py"]), copy.ran

    return result


def test_a_change_meets_its_module_s_own_files_then_the_others(tried):
    row, ran = tried("b.py::b")
    assert ran == [["a.py::quick", "a.py::slow"], ["b.py::b", "c.py::c"]]
    assert (row["by"], row["by_own"]) == (["b.py::b - Error"], False)


def test_by_file_all_tests_of_its_own_files_run(tried):
    row, ran = tried("a.py::quick", "a.py::slow")
    assert ran == [["a.py::quick", "a.py::slow"]]
    assert row["by"] == ["a.py::quick - Error", "a.py::slow - Error"]


def test_without_by_file_tests_run_only_until_one_fails(tried):
    row, _ = tried("a.py::quick", "a.py::slow", by_file=False)
    assert row["by"] == ["a.py::quick - Error"]


def test_a_change_that_was_tried_is_not_tried_again_until_its_module_changes(tried, module):
    tried("b.py::b")
    row, ran = tried()
    assert (row["by"], ran) == (["b.py::b - Error"], [])
    module.write_text(f"{MODULE}\n")
    known.digest.cache_clear()
    row, ran = tried()
    assert (row["by"], len(ran)) == ([], 2)


def test_a_result_of_fewer_tests_is_not_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(known, "CACHE", tmp_path)
    of = lambda seconds, whole: known.Results("results", seconds, whole=whole)  # noqa: E731
    of(10, False).add("survived", {"by": []}, [])
    of(10, False).add("noticed", {"by": ["a"]}, [])
    assert of(10, False).get("survived")["by"] == []
    assert of(20, False).get("survived") is None
    assert of(20, False).get("noticed")["by"] == ["a"]
    assert of(10, True).get("noticed") is None


def test_only_a_test_file_that_changed_runs_again_for_the_map(tmp_path, monkeypatch):
    monkeypatch.setattr(known, "CACHE", tmp_path)
    one, two = (str(tmp_path / f"test_{name}.py") for name in ("one", "two"))
    for path in one, two:
        Path(path).touch()
    tests = {f"{one}::test_it": (1, ["x.lua"]), f"{two}::test_it": (1, ["x.lua"])}
    known.Map("map").add([one, two], tests, failed={f"{two}::test_it"})
    assert known.Map("map").missing([one, two]) == []
    assert list(known.Map("map").tests([one, two])) == [f"{one}::test_it"]
    Path(two).write_text("another")
    known.digest.cache_clear()
    assert known.Map("map").missing([one, two]) == [two]


def row(told, *by, own=("a.py",)):
    by_own = any(each.startswith(own) for each in by)
    tests = {"own": own, "by": by, "by_own": by_own, "ran": 3, "of": 4}
    return {"told": told, "module": "m.py", **tests}


def test_the_report_names_what_nobody_notices_and_the_functions_that_notice_nothing():
    tests = Chosen({f"a.py::{name}": (1, ["m.py:1"]) for name in ("one[1]", "one[2]", "two", "no")})
    rows = [
        row("first", "a.py::one[1] - E", "a.py::two - E [a] - b", HANGS),
        row("second", "a.py::two - E"),
        row("third", "b.py::other - E"),
        row("fourth"),
    ]
    assert "fourth" in report.survivors(rows)
    assert "first" not in report.survivors(rows)
    assert list(report.noticing(rows, tests)) == [
        "a.py: fails for 2 of 4 changes of m.py; 2 of its 3 functions notice one, 1 are enough",
        "    no",
    ]
    assert report.summary(rows, 9, 81, 1) == (
        "tried 4 of 9 changes, of 81 places (seed 1): 2 are noticed by the module's own test "
        "files, 1 by others, 1 by nobody"
    )


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path / "copy")


def test_a_run_in_a_copy_returns_the_failed_test_and_leaves_no_file(copy):
    test = copy.tree / "tests" / "test_one.py"
    test.write_text("import tempfile\n\ndef test_one():\n    assert not tempfile.mkdtemp()\n")
    (failed,) = copy.failures("-n", "0", str(test))
    assert failed.startswith("tests/test_one.py::test_one - AssertionError")
    assert [path.name for path in copy.tree.parent.iterdir()] == ["tree"]
    copy.stop()
    with pytest.raises(StoppedError):
        copy.failures("-n", "0", str(test))


def test_a_run_that_hangs_ends_with_that_after_the_tests_that_failed_so_far(copy):
    test = copy.tree / "tests" / "test_one.py"
    test.write_text("def test_hangs():\n    import threading\n    threading.Event().wait()\n")
    assert copy.failures("-n", "0", str(test), seconds=2) == [HANGS]
    said = """\
tests/test_one.py::test_one[a b] PASSED                          [  8%]
tests/test_one.py::test_one[a-FAILED] FAILED                     [ 17%]
tests/test_one.py::test_two ERROR                                [100%]
tests/test_one.py::test_hangs"""
    assert SO_FAR.findall(said) == [
        "tests/test_one.py::test_one[a-FAILED]",
        "tests/test_one.py::test_two",
    ]
