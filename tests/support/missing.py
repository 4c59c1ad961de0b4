"""For tests that need a server which this machine lacks."""

import os

import pytest


def missing(what: str) -> None:
    """Skip at home; fail in CI, because a suite that skips proves nothing."""
    sentence = f"{what} is not installed; ./tests/run as root gets it from the distribution"
    if os.environ.get("CI") == "true":
        pytest.fail(sentence, pytrace=False)
    pytest.skip(sentence)
