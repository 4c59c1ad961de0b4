"""The pytest plugin of celery_delayq: the fixtures ``delayq`` and ``delayq_app``.

pytest loads it whenever celery_delayq is installed, so it imports neither Celery nor the rest of
the package until a test requests a fixture, or the option ``delayq_forbid_store`` is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for the app, and for a Redis in place of fakeredis."""
    group = parser.getgroup("celery_delayq")
    group.addoption(
        "--delayq-redis",
        metavar="URL",
        help="A Redis for the fixture delayq, instead of fakeredis; it deletes its own keys only.",
    )
    parser.addini("delayq_redis", "The same in the configuration.")
    parser.addini("delayq_app", "The Celery app of the fixture delayq_app, as in celery -A.")
    parser.addini(
        "delayq_forbid_store",
        "Whether calls that reach a store fail in tests without the fixture delayq.",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Forbid the stores of apps that are not isolated, if the option is set."""
    if config.getini("delayq_forbid_store"):
        from celery_delayq.contrib.testing.apps import forbid_stores

        config.add_cleanup(forbid_stores())


@pytest.fixture
def delayq_app(request: pytest.FixtureRequest) -> Any:
    """The Celery app under test; override it, or set pytest's option ``delayq_app``."""
    from celery_delayq.contrib.testing.apps import app_of_test

    with _sentences():
        return app_of_test(request.config.getini("delayq_app"))


@pytest.fixture
def delayq_options() -> dict[str, Any]:
    """Options for ``isolated`` besides the app; override it."""
    return {}


@pytest.fixture
def delayq(request: pytest.FixtureRequest, delayq_app: Any, delayq_options: dict[str, Any]) -> Any:
    """The app's ``DelayQ``, with a store, a broker, results and a clock for this test alone."""
    from celery_delayq.contrib.testing.isolation import isolated

    config = request.config
    redis = config.getoption("--delayq-redis") or config.getini("delayq_redis") or None
    with ExitStack() as stack:
        with _sentences():
            made = stack.enter_context(isolated(delayq_app, **{"redis": redis, **delayq_options}))
        yield made


@contextmanager
def _sentences() -> Iterator[None]:
    """Report missing requirements in a sentence, without a traceback."""
    from celery_delayq.core.errors import DelayQError

    sentence = ""
    try:
        yield
    except DelayQError as error:
        sentence = str(error)
    if sentence:
        pytest.fail(sentence, pytrace=False)
