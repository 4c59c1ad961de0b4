"""What the page "Versions" promises stays as it was frozen, until a major release."""

import pytest

from tests.readme import stable

BREAK = "this breaks users; deprecate it first, as docs/reference/versions.md says:"
FREEZE = "freeze this, and read the diff: python -m tests.readme.stable"


@pytest.fixture(scope="module")
def now():
    return set(stable.lines())


@pytest.fixture(scope="module")
def frozen():
    return set(stable.FROZEN.read_text("utf-8").splitlines())


def test_nothing_that_is_stable_is_gone_or_another(now, frozen):
    gone = sorted(frozen - now)
    assert not gone, "\n".join([BREAK, *gone])


def test_everything_that_is_stable_is_frozen(now, frozen):
    new = sorted(now - frozen)
    assert not new, "\n".join([FREEZE, *new])
