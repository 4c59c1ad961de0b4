"""The table has every operation, and nothing else; the documentation names each of them."""

import re

import pytest

from celery_delayq import DelayQ
from celery_delayq.core.store.scripts import load
from celery_delayq.operations.cli import delayq
from tests.operations.table import (
    LINES,
    NO_OPERATION_COMMANDS,
    NO_OPERATIONS,
    NOTES,
    OPERATIONS,
    RESHARD,
    UPGRADE,
    each_face,
    each_operation,
)
from tests.readme.document import PAGES, page

COMMANDS = sorted({line.split()[0] for line in (*LINES, *NO_OPERATION_COMMANDS)})


def test_every_script_has_a_row():
    others = [*NOTES, *RESHARD, *UPGRADE]
    assert sorted([*{one.script for one in OPERATIONS}, *others]) == sorted(load())


def test_every_method_of_delayq_is_in_a_row_or_no_operation():
    methods = {
        name for name in dir(DelayQ) if callable(getattr(DelayQ, name)) and not name.startswith("_")
    }
    named = [name for one in OPERATIONS for name in one.face]
    assert sorted([*named, *NO_OPERATIONS]) == sorted(methods)


def test_every_command_is_in_a_row_or_no_operation():
    assert delayq.list_commands(None) == COMMANDS


@each_operation
def test_an_error_calls_all_that_changes_nothing_a_read(operation):
    step = operation.script if operation.changes else "read"
    assert load()[operation.script].step == step


@each_operation
def test_only_what_a_caller_does_is_told_apart_by_a_task_s_id(operation):
    assert operation.by in ("caller", "scanner", "worker")
    assert operation.by == "caller" or "{id}" not in "".join(operation.cli)


@each_face
def test_a_page_names_the_method(operation, method):
    assert re.search(rf"\.{method}\b|`{method}`", "".join(document.text for document in PAGES))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_names_the_command(command):
    assert re.search(rf"\bdelayq {command}\b|`{command}\b", page("reference/cli").text)
