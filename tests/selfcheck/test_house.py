"""The plan of the deeper modules is a plan of this package."""

from tests.lab.house import plan
from tests.lab.roads import PACKAGE

MODULES = {path.relative_to(PACKAGE).with_suffix("").as_posix() for path in PACKAGE.rglob("*.py")}


def test_the_plan_names_each_module_once():
    assert plan.problems(plan.read(plan.HOUSE.read_text("utf-8")), MODULES) == []


def test_a_module_that_is_in_no_line_or_in_two_or_is_none_is_told():
    found = plan.read("core/time = core/clock core/zone | times\ncore/text = core/clock | words\n")
    assert plan.problems(found, {"core/clock", "core/keys", "core/__init__"}) == [
        "core/clock is named twice",
        "core/zone is no module",
        "core/keys is in no line",
    ]
