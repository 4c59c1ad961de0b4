"""A call that is interrupted anywhere: nobody reads its answer, and no connection is lost.

Redis is behind a proxy that holds each answer back a little, so that an interrupted call leaves one
on its way.
"""

import random
import select
import signal
import sys
import threading
import time
from contextlib import contextmanager, nullcontext, suppress

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from celery_delayq.errors import StoreError
from celery_delayq.store import Endpoint, PooledConnection, Wakeup
from celery_delayq.store import pool as module
from celery_delayq.store.connection import packed
from celery_delayq.store.keys import Keys
from celery_delayq.store.pool import Pool
from tests.support.slow_link import SlowLink
from tests.support.waiting import eventually

pytestmark = [
    # What is interrupted where redis-py closes a connection is reported; nothing else comes of it.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

MOST = 3  # connections


class Asking:
    """Asks for answers that are one question's alone."""

    def __init__(self, port, most=MOST):
        self.client = PooledConnection(Endpoint("127.0.0.1", port))
        self.most, self.number = most, 0
        self.client._pool = Pool(self.client._new, most)

    @property
    def pool(self):
        return self.client.pool

    def __call__(self):
        """Ask; fail where the answer is another's."""
        self.number += 1
        answer = self.client.execute("echo", packed(["ECHO", self.number]))
        assert answer == b"%d" % self.number

    def wrongly(self):
        with suppress(StoreError):
            self.client.execute("wrong", packed(["NO-SUCH-COMMAND"]))

    def takes_all(self):
        """Take every connection that there may be, and give them back."""
        until = time.monotonic() + 5
        taken = {self.pool.take(until) for _ in range(self.most)}
        for connection in taken:
            self.pool.give(connection)
        assert len(taken) == self.most


@pytest.fixture
def link(redis_server, redis_url):
    with SlowLink(redis_server.port, seconds=0.0005) as link:
        yield link


@pytest.fixture
def asking(link, monkeypatch):
    # In the tests a call is lost more often than every ten seconds.
    monkeypatch.setattr(module, "COLLECT_AGAIN", 0)
    made = []

    def make(most=MOST):
        made.append(Asking(link.port, most))
        return made[-1]

    yield make
    for one in made:
        one.client.close()


@pytest.fixture
def ask(asking):
    return asking()


class InterruptError(BaseException):
    """No Exception, like Ctrl-C and the time-outs of gevent and eventlet."""


class Interruption:
    """Raises at one opcode of what runs: of all in this package, of some in redis-py.

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
        if "/celery_delayq/store/" in path:
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


# Since Python 3.12 `sys.settrace` tells of some opcodes only; by signals it is tried there as well.
by_opcode = pytest.mark.skipif(sys.version_info >= (3, 12), reason="opcodes are not all traced")


def everywhere(call, within=nullcontext):
    """Interruptions of *call*, each a place further on; after the last of them it ran through."""
    place, came = 0, True
    while came:
        interruption = Interruption(place)
        with within():
            # CPython keeps an exception for good that is traced at the end of its handler, in the
            # thread that handled it. No signal comes there.
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


@by_opcode
def test_no_answer_is_read_by_another_call(ask):
    ask()
    for _ in everywhere(ask):
        ask()
        ask()
    ask.takes_all()


@by_opcode
def test_nor_is_one_to_a_connection_s_greeting(ask):
    for _ in everywhere(ask):
        ask()
        ask.pool.close()
    ask.takes_all()


@by_opcode
def test_nor_is_an_error(ask):
    ask()
    for _ in everywhere(ask.wrongly):
        ask()
    ask.takes_all()


@by_opcode
def test_nor_where_a_connection_is_replaced_that_the_server_closed(ask, raw):
    def close():
        ask()
        number = ask.client.execute("id", packed(["CLIENT", "ID"]))
        socket = ask.pool._idle[-1]._sock
        raw.client_kill_filter(_id=number)
        select.select([socket], [], [], 5)

    close()
    for _ in everywhere(ask):
        ask()
        close()
    ask.takes_all()


@by_opcode
def test_a_caller_in_line_can_be_interrupted(asking):
    ask = asking(most=1)
    ask()

    @contextmanager
    def busy():
        held, over = ask.pool.take(time.monotonic() + 5), threading.Event()

        def give_back():
            eventually(lambda: ask.pool._line or over.is_set())
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


def test_whoever_waits_learns_of_a_connection_that_was_lost(asking):
    ask = asking(most=1)
    lost = [ask.pool.take(time.monotonic() + 5)]
    thread = threading.Thread(target=ask)
    thread.start()
    eventually(lambda: ask.pool._line)

    lost.clear()

    thread.join(5)
    assert not thread.is_alive()


@by_opcode
def test_a_scanner_that_is_interrupted_waits_again_on_one_connection(link, raw):
    keys = Keys("delayq")
    wakeup = Wakeup(PooledConnection(Endpoint("127.0.0.1", link.port)), [keys], "me")

    def listen_and_wait():
        wakeup.listen()
        wakeup.wait(0)

    for _ in everywhere(listen_and_wait):
        listen_and_wait()

    eventually(lambda: len(raw.client_list(_type="pubsub")) == 1)
    raw.publish(keys["wake"], "")
    assert wakeup.wait(10) == {0}
    wakeup.close()


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
