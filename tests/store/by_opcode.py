"""A call is interrupted at each opcode: `test_interrupted.py` runs each test in a process.

Not in the suite's own processes: CPython 3.11 itself may crash when so much is traced.
"""

import select
import sys
import threading
import time
from contextlib import contextmanager, nullcontext

import pytest

from celery_delayq.core.servers.connection import Connection, packed
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.core.store.keys import Keys
from celery_delayq.core.store.wakeup import Wakeup
from tests.support.waiting import eventually

pytestmark = [
    # If redis-py is interrupted as it closes a connection, Python only reports that.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class InterruptError(BaseException):
    """Not an Exception, like Ctrl-C and the time-outs of gevent and eventlet."""


class Interruption:
    """Raises at one opcode: any opcode of this package, or some of redis-py.

    redis-py is not relied upon to be in order afterwards, wherever it was.
    """

    def __init__(self, place):
        self._left, self._foreign = place, 0
        self.came = False

    def of(self, call):
        sys.settrace(self._call)
        try:
            call()
        except InterruptError:
            pass
        finally:
            sys.settrace(None)

    def _call(self, frame, event, _):
        path = frame.f_code.co_filename
        if "/celery_delayq/core/store/" in path or "/celery_delayq/core/servers/" in path:
            trace = self._ours
        elif "/redis/" in path:
            trace = self._theirs
        else:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return trace

    def _ours(self, frame, event, _):
        if event == "opcode":
            self._step()
        return self._ours

    def _theirs(self, frame, event, _):
        if event == "opcode":
            self._foreign += 1
            if self._foreign % 60 == 0:
                self._step()
        return self._theirs

    def _step(self):
        self._left -= 1
        if self._left < 0 and not self.came:
            self.came = True
            raise InterruptError


def everywhere(call, within=nullcontext):
    """Interruptions of *call*, each one place further on; after the last one the call ends."""
    place, came = 0, True
    while came:
        interruption = Interruption(place)
        with within():
            # If an exception is traced at the end of its handler, CPython keeps it for good, in the
            # thread that handled it. No signal arrives there.
            in_thread(interruption.of, call)
        came = interruption.came
        place += 1
        yield place
    assert place > 100, "the call was not traced"


def in_thread(call, *arguments):
    errors = []

    def run():
        try:
            call(*arguments)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    for error in errors:
        raise error


def test_no_answer_is_read_by_another_call(ask):
    ask()
    for _ in everywhere(ask):
        ask()
        ask()
    ask.takes_all()


def test_no_answer_to_a_greeting_is_left_by_an_interruption(ask):
    for _ in everywhere(ask):
        ask()
        ask.pool.close()
    ask.takes_all()


def test_no_error_is_left_by_an_interruption(ask):
    ask()
    for _ in everywhere(ask.wrongly):
        ask()
    ask.takes_all()


def test_no_answer_is_left_where_a_connection_is_replaced_that_the_server_closed(ask, raw):
    def close():
        ask()
        number = ask.client.execute("id", packed(["CLIENT", "ID"]))
        used = ask.pool.take(time.monotonic() + 30)
        raw.client_kill_filter(_id=number)
        select.select([used._sock], [], [], 5)
        ask.pool.give(used)

    close()
    for _ in everywhere(ask):
        ask()
        close()
    ask.takes_all()


def test_a_caller_in_line_can_be_interrupted(asking, line):
    ask = asking(most=1)
    ask()

    @contextmanager
    def busy():
        held, over = ask.pool.take(time.monotonic() + 30), threading.Event()
        waits = line.joins()

        def give_back():
            eventually(lambda: waits() or over.is_set())
            ask.pool.give(held)

        thread = threading.Thread(target=give_back)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    for _ in everywhere(ask, within=busy):
        ask()


def test_a_scanner_that_is_interrupted_waits_again_on_one_connection(link, raw):
    keys = Keys("delayq")
    wakeup = Wakeup(Connection(Endpoint("127.0.0.1", link.port)), [keys], "me")

    def listen_and_wait():
        wakeup.listen()
        wakeup.wait(0)

    for _ in everywhere(listen_and_wait):
        listen_and_wait()

    eventually(lambda: len(raw.client_list(_type="pubsub")) == 1)
    raw.publish(keys["wake"], "")
    assert wakeup.wait(30) == {0}
    wakeup.close()
