"""The commands that run one of several trials, such as ``./tests/run recurring NAME``."""

import signal
import sys
from collections.abc import Sequence
from importlib import import_module


def run(command: str, names: Sequence[str]) -> int:
    """Run the trial that the command line names: ``main()`` of a module of tests/lab/COMMAND."""
    # By default SIGTERM skips every clean-up; so it becomes an orderly end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in names:
        print(f"./tests/run {command} {{{','.join(names)}}} [--help]", file=sys.stderr)
        return 2
    sys.argv[:2] = [f"./tests/run {command} {name}"]
    status: int = import_module(f"tests.lab.{command}.{name}").main()
    return status
