"""The example's own tests, run as a reader runs them, with only the installed plugin."""

import os
import subprocess
import sys

from tests.readme.document import ROOT


def test_the_tests_of_the_scenes_pass():
    apart = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "example_project"],
        cwd=ROOT,
        env=apart,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "6 passed" in ran.stdout
