"""A call is interrupted anywhere: no other call reads its answer, and no connection is lost."""

import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from tests.store import by_opcode
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.libraries,
    # If redis-py is interrupted as it closes a connection, Python only reports that.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

BY_OPCODE = [name for name in vars(by_opcode) if name.startswith("test_")]


# Since Python 3.12 `sys.settrace` reports only some opcodes; so signals are used there as well.
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="opcodes are not all traced")
@pytest.mark.parametrize("name", BY_OPCODE)
def test_at_each_opcode(name):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    for _ in range(3):
        done = subprocess.run(
            [*command, f"{by_opcode.__file__}::{name}"], capture_output=True, text=True, check=False
        )
        if done.returncode != -signal.SIGSEGV:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_a_waiting_caller_learns_of_a_lost_connection(asking, line):
    ask = asking(most=1)
    lost = [ask.pool.take(time.monotonic() + 30)]
    waits, thread = line.joins(), threading.Thread(target=ask)
    thread.start()
    eventually(waits)

    lost.clear()

    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize("error", [SoftTimeLimitExceeded, KeyboardInterrupt])
def test_signals_leave_no_answer_and_lose_no_connection(ask, error):
    def interrupt(*_):
        raise error

    before, times = signal.signal(signal.SIGALRM, interrupt), random.Random(1)
    interrupted = 0
    try:
        for _ in range(400):
            try:
                signal.setitimer(signal.ITIMER_REAL, times.uniform(0.0001, 0.003))
                ask()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except error:
                interrupted += 1
            ask()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 20
    ask.takes_all()
