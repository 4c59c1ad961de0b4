"""What a process imports that has no use for it, import-linter cannot see."""

import subprocess
import sys

import pytest

LOADED = "print([name for name in sys.modules if name.startswith('celery_delayq.care')])"
START = "import sys; from celery import Celery; from celery_delayq import DelayQ;"


@pytest.mark.parametrize(
    "program",
    [
        "import celery_delayq.cli, celery_delayq.metrics, celery_delayq.contrib.pytest;",
        "DelayQ(Celery(broker='redis://')).scanner();",
    ],
)
def test_care_is_not_imported_before_it_is_used(program):
    done = subprocess.run(
        [sys.executable, "-c", f"{START}{program}{LOADED}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_it_is_by_the_methods_that_use_it():
    program = "DelayQ(Celery(broker='redis://')).dump();"
    done = subprocess.run(
        [sys.executable, "-c", f"{START}{program}{LOADED}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert "celery_delayq.care.dumping" in done.stdout
