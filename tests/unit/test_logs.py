"""Ids, queues and reasons reach a log as one line of plain text; a count has its plural."""

import importlib
import logging
import pkgutil

import pytest

import celery_delayq
from celery_delayq.core.handover.relay import report
from celery_delayq.core.hooks import Hooks
from celery_delayq.core.store.delivery import Seen
from celery_delayq.core.text import logger_of
from celery_delayq.errors import BrokerDown

HOSTILE = "two\nlines\r\x1b[31mred\x1b[0m\x00\u202e\u2028\udcff"
PLAIN = r"two\nlines\r\x1b[31mred\x1b[0m\x00\u202e\u2028\udcff"


@pytest.mark.parametrize("argument", [HOSTILE, BrokerDown(HOSTILE)], ids=["text", "an error"])
def test_an_argument_of_a_line_is_escaped(caplog, argument):
    logger_of("celery_delayq.test").warning("task %s: %.1f s, %d", argument, 1.25, 3)
    [line] = caplog.messages
    assert line.startswith("task ")
    assert line.endswith(f"{PLAIN}: 1.2 s, 3")


def test_printable_text_stays_as_it_is(caplog):
    logger_of("celery_delayq.test").warning("task %s", "日本 süß 'quoted' \\ 100%")
    assert caplog.messages == ["task 日本 süß 'quoted' \\ 100%"]


def test_every_logger_of_the_package_is_such_a_one():
    found = pkgutil.walk_packages(celery_delayq.__path__, "celery_delayq.")
    # Django imports its own, once it is set up.
    names = [one.name for one in found if not {"contrib", "django"} & {*one.name.split(".")}]
    modules = [importlib.import_module(name) for name in names]
    loggers = [value for module in modules for value in vars(module).values()
               if isinstance(value, logging.Logger)]  # fmt: skip

    assert len(loggers) >= 7
    assert {len(logger.filters) for logger in loggers} == {1}


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "1 task was refused by its list and keeps"),
        (2, "2 tasks were refused by their list and keep"),
    ],
)
def test_the_line_on_refused_tasks_has_a_singular_and_a_plural(caplog, count, said):
    seen = Seen(0, 0, None, None, None, None, False, [], 0.0, refused=[("WRONGTYPE", count)])
    with caplog.at_level(logging.WARNING):
        report(Hooks(), seen)
    assert caplog.messages == [f"{said} waiting: WRONGTYPE"]
