"""Kill the processes that a suite left running when it died.

A fixture's clean-up does not run after SIGKILL. So one small process holds the read end of a pipe:
the suite writes ``+group`` when it starts a process group and ``-group`` when that has ended; the
end of the file means that the suite itself is gone, and whatever is still on the list goes with it.
"""

import contextlib
import functools
import os
import signal
import subprocess
import sys


def watch(group: int) -> None:
    _write(f"+{group}")


def unwatch(group: int) -> None:
    _write(f"-{group}")


def _write(line: str) -> None:
    # A forked child has its own reaper: through the parent's, it would change the parent's list.
    os.write(_pipe(os.getpid()), f"{line}\n".encode())


@functools.cache
def _pipe(owner: int) -> int:
    read_end, write_end = os.pipe()
    reaper = subprocess.Popen(
        [sys.executable, "-S", "-E", __file__],
        stdin=read_end,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(read_end)
    # It ends after this process, which so cannot wait for it: suppress Popen's warning.
    reaper.returncode = 0
    return write_end


def main() -> None:
    groups = set()
    for line in sys.stdin:
        change = groups.add if line[0] == "+" else groups.discard
        change(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
