"""What the page "What is stable" promises stays as it was frozen, until a major release."""

import re

import pytest

from tests.readme import stable

BREAK = "this breaks users: deprecate it first, as docs/reference/stable.md says"
FREEZE = "freeze it, and read the diff: python -m tests.readme.stable"


@pytest.fixture(scope="module")
def now():
    return set(stable.lines())


@pytest.fixture(scope="module")
def frozen():
    return set(stable.FROZEN.read_text("utf-8").splitlines())


def test_nothing_that_is_stable_is_gone_or_another(now, frozen):
    assert sorted(frozen - now) == [], BREAK


def test_everything_that_is_stable_is_frozen(now, frozen):
    assert sorted(now - frozen) == [], FREEZE


@pytest.mark.parametrize(("what", "names"), stable.names().items(), ids=str)
def test_every_name_of_the_page_is_frozen(frozen, what, names):
    assert names - {"--json"} <= set(re.findall(r"[\w-]+", " ".join(frozen))), what
