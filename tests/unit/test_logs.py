"""Ids, queues and reasons reach a log as one line of plain text."""

import importlib
import logging
import pkgutil

import pytest

import celery_delayq
from celery_delayq.core.logs import logger_of
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
