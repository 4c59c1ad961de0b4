"""A pytest plugin: write down what each test reaches; ``-p tests.lab.mutants.reached``.

Each process writes a file into the folder of the variable DELAYQ_REACHED when it ends: for each of
its tests the seconds, and the functions ("celery_delayq/core/clock.py:12", where it begins) and
scripts ("schedule.lua") that it entered. Needs Python 3.12 for `sys.monitoring`.
"""

import json
import os
import sys
import time
from pathlib import Path

import pytest

import celery_delayq
from celery_delayq.core.store.scripts import Scripts
from tests.support import parallel

TREE = f"{Path.cwd()}{os.sep}"
PACKAGE = f"{TREE}celery_delayq{os.sep}"
TOOL = 1  # sys.monitoring.COVERAGE_ID, which earlier Pythons lack
PROCESSES = "processes"  # "reached" by a test in another Python process, which is not traced

_entered: set[str] = set()
_tests: dict[str, tuple[float, list[str]]] = {}


def pytest_configure():
    assert celery_delayq.__file__.startswith(PACKAGE), "not the copy"
    sys.addaudithook(_audited)
    for name in ("_call", "call_and"):
        setattr(Scripts, name, _noted(getattr(Scripts, name)))
    sys.monitoring.use_tool_id(TOOL, "mutants")
    sys.monitoring.register_callback(TOOL, sys.monitoring.events.PY_START, _started)
    sys.monitoring.set_events(TOOL, sys.monitoring.events.PY_START)


def _started(code, _offset):
    if code.co_filename.startswith(PACKAGE):
        _entered.add(f"{code.co_filename[len(TREE) :]}:{code.co_firstlineno}")
    return sys.monitoring.DISABLE  # until the next test


def _audited(event, arguments):
    if event == "os.fork" or (event == "subprocess.Popen" and _is_python(arguments[1])):
        _entered.add(PROCESSES)


def _is_python(command):
    words = [Path(os.fsdecode(word)).name for word in command]
    return "reaper.py" not in words and any(each.startswith(("python", "celery")) for each in words)


def _noted(call):
    def noted(scripts, name, *args, **options):
        _entered.add(f"{name}.lua")
        return call(scripts, name, *args, **options)

    return noted


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    _entered.clear()
    sys.monitoring.restart_events()
    began = time.monotonic()
    try:
        return (yield)
    finally:
        # It may use a worker that another test started.
        if parallel.group_of(item):
            _entered.add(PROCESSES)
        _tests[item.nodeid] = time.monotonic() - began, sorted(_entered)


def pytest_sessionfinish():
    if _tests:
        path = Path(os.environ["DELAYQ_REACHED"], f"{os.getpid()}.json")
        path.write_text(json.dumps(_tests), encoding="utf-8")
