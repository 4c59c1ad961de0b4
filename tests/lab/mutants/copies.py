"""Copies of the tree, in which tests run; processes and files of a run end with it."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.support import reaper

NOT_COPIED = shutil.ignore_patterns(".venv*", ".git", "__pycache__", ".*_cache", ".hypothesis")
GRACE = 30  # seconds to end in good order
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+)", re.MULTILINE)
SO_FAR = re.compile(r"^(tests/.+?) (?:FAILED|ERROR) +\[ *\d+%\]$", re.MULTILINE)
HANGS = "(hangs)"
NO_TESTS = 5  # pytest ran none, as none has the marker


class StoppedError(Exception):
    """The run was ended by `Copy.stop`; its result means nothing."""


class Copy:
    """One copy of the tree; runs one pytest at a time.

    Args:
        folder: A new folder for the copy, and for the temporary files of its tests.
    """

    def __init__(self, folder: Path):
        self._temporary = folder / "tmp"
        self.tree = Path(shutil.copytree(".", folder / "tree", ignore=NOT_COPIED))
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def failures(self, *arguments: str, seconds: float | None = None, **env: str) -> list[str]:
        """Run pytest; return the tests that failed, each with its error.

        Args:
            arguments: Of pytest.
            seconds: A run that takes longer hangs: the last of its failures is ``HANGS``.
            env: More variables of its environment.

        Raises:
            StoppedError: somebody called `stop` meanwhile.
        """
        self._temporary.mkdir()
        command = [sys.executable, "-m", "pytest", "-v", "-rfE", "--tb=no", *arguments]
        # The copy comes before the installed package, also in processes that the tests start.
        ours = {"PYTHONPATH": str(self.tree), "TMPDIR": str(self._temporary)}
        self._process = process = subprocess.Popen(
            command, cwd=self.tree, text=True, errors="replace", start_new_session=True,
            env={**os.environ, **ours, "CI": "true", "COLUMNS": "300", **env},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        reaper.watch(process.pid)
        try:
            if self._stopped:
                self._end()
            try:
                said, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                self._end()
                said, _ = process.communicate()
                return [*SO_FAR.findall(said), HANGS]
        finally:
            reaper.unwatch(process.pid)
            shutil.rmtree(self._temporary, ignore_errors=True)
        if self._stopped:
            raise StoppedError
        if process.returncode in (0, NO_TESTS):
            return []
        return FAILED.findall(said) or [f"(does not start) {said.strip()[-500:]}"]

    def stop(self) -> None:
        """End the run, and any later one."""
        self._stopped = True
        if self._process and self._process.poll() is None:
            self._end()

    def _end(self) -> None:
        """First in good order; servers end with the process that started them, by its reaper."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)
            os.killpg(self._process.pid, signal.SIGKILL)
