"""The base of the suite's servers: a folder, a process, and an end."""

import shutil
import tempfile
from pathlib import Path

from tests.support.process import ChildProcess
from tests.support.waiting import eventually


class Server:
    """A server that keeps its folder and its ports over a restart. Subclasses say how it starts."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="delayq-"))
        self._process: ChildProcess | None = None

    def __enter__(self):
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        self.start()

    def start(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Kill it and remove its folder."""
        self.kill()
        # A helper of the server's own may write its last file meanwhile.
        eventually(self._is_removed)

    def _is_removed(self) -> bool:
        shutil.rmtree(self.folder, ignore_errors=True)
        return not self.folder.exists()

    def stop(self) -> None:
        """End it as a shutdown would: its persistent data are on disk."""
        self._process.stop(timeout=60)

    def kill(self) -> None:
        if self._process:
            self._process.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        return self._process.pid
