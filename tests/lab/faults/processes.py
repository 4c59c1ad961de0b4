"""Scanner processes of a test's own."""

import json

from tests.support.forked import PythonProcess
from tests.support.waiting import eventually
from tests.support.worker import ROOT

STARTED = r"scanner .* started"


class ScannerProcess(PythonProcess):
    """A scanner alone in a process, for an app with this configuration.

    Args:
        conf: The app's configuration; plain values.
        fault: A point and the fault there, see `tests.lab.faults.scan`.
        log: The file for its output.
    """

    def __init__(self, conf, *fault, log):
        super().__init__(
            *("-m", "tests.lab.faults.scan", *fault),
            log=log,
            env={"DELAYQ_TEST_CONF": json.dumps(conf)},
            cwd=ROOT,
        )

    def thaw(self):
        """Let it go on where it froze."""

        def thawed():
            self.resume()  # which does nothing if it comes before the process stops
            return "thawed" in self.lines

        eventually(thawed)

    def wait_started(self, timeout=30):
        self.wait_log(STARTED, timeout)
        return self
