"""Threads of the package: the log has the error that ends one, and another takes its place."""

import logging
import threading
from types import SimpleNamespace

import pytest
import redis

from celery_delayq.contrib.adoption.batches import Batches
from celery_delayq.contrib.held import Reporter
from celery_delayq.core import threads
from celery_delayq.core.handover.contact import Away
from celery_delayq.core.hooks import Hooks
from celery_delayq.core.message.headers import Hold
from celery_delayq.core.servers.endpoint import Credentials
from celery_delayq.core.threads import OwnThread
from celery_delayq.errors import AlreadyTaken
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries


class Stop(threading.Event):
    """Notes the pauses instead of waiting."""

    def __init__(self):
        super().__init__()
        self.pauses = []

    def wait(self, timeout=None):
        self.pauses.append(timeout)
        return self.is_set()


def ending(times, error=SystemExit):
    """A function that raises so many times."""
    left = [error(3)] * times

    def end(*_):
        if left:
            raise left.pop()

    return end


class Shard(SimpleNamespace):
    __hash__ = object.__hash__


def ran(run, stop=None, *cleaned):
    """A thread that has ended, after it ran this."""
    thread = OwnThread("one", run, stop or threading.Event(), *cleaned)
    thread.start()
    thread.join(PATIENCE)
    return thread


@pytest.fixture
def at_once(limits):
    limits(thread_first_s=0.0)


def test_each_end_is_in_the_log_and_the_pauses_grow_to_half_a_minute(monkeypatch, caplog):
    monkeypatch.setattr("random.SystemRandom.uniform", lambda *given: given[-1])
    stop, cleaned = Stop(), []
    thread = ran(ending(8), stop, cleaned.append)

    assert stop.pauses == [0, 1, 2, 4, 8, 16, 30, 30, 30]
    assert thread.restarts == 8
    assert cleaned == [1, 2, 3, 4, 5, 6, 7, 8]
    said = {(record.levelno, record.getMessage().partition(";")[0]) for record in caplog.records}
    assert said == {(logging.CRITICAL, "the thread one has ended: SystemExit(3)")}
    assert all(record.exc_info[1].code == 3 for record in caplog.records)


def test_a_handler_of_the_log_that_ends_threads_does_not_keep_the_next_one_from_starting(at_once):
    handler = logging.Handler()
    handler.emit = ending(2)
    threads.logger.addHandler(handler)
    try:
        thread = ran(ending(2))
    finally:
        threads.logger.removeHandler(handler)

    assert (thread.restarts, thread.is_alive()) == (2, False)


def test_a_stop_ends_the_pause_before_the_next_thread_at_once(limits):
    limits(thread_first_s=3600.0, thread_longest_s=3600.0)
    stop, runs = threading.Event(), []

    def run():
        runs.append(stop.is_set())
        if not stop.is_set():
            raise SystemExit

    thread = OwnThread("one", run, stop)
    thread.start()
    eventually(lambda: thread.restarts == 1)
    stop.set()
    thread.join(PATIENCE)

    assert not thread.is_alive()
    assert runs == [False, True]  # the second time to clear up


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_in_a_thread_of_the_program_what_ends_it_passes(error):
    with pytest.raises(error):
        threads.spared(ending(1, error))()


def test_a_hook_and_a_logins_provider_end_no_thread_of_the_package(caplog):
    hooks, done = Hooks(dead=ending(1)), []
    login = Credentials(SimpleNamespace(get_credentials=ending(1)))

    def run():
        hooks.dead("a", "why")
        with pytest.raises(redis.AuthenticationError):
            login.get_credentials()
        done.append(True)

    assert (ran(run).restarts, done) == (0, [True])
    said = [record.getMessage() for record in caplog.records]
    assert len([one for one in said if one.endswith("in the thread one, which goes on")]) == 2


def test_words_about_keys_are_sent_by_the_next_thread(at_once):
    sent, end = [], ending(1)

    def hold(words, _until):
        end()
        sent.append(words)

    services = SimpleNamespace(
        settings=SimpleNamespace(timeout=1, shards=1), entries=SimpleNamespace(hold=hold)
    )
    reporter = Reporter(services)
    reporter.has_ended(Hold("a", "k", "1.2", 5000))

    eventually(lambda: sent == [[("a", "k", "1.2", 0, 0)]])
    reporter.stop()


def test_messages_with_an_eta_that_an_ended_thread_was_writing_are_asked_for_again(at_once, limits):
    limits(adoption_again_s=0.0)
    end, written = ending(1), []

    def write(batch):
        written.append([one.task_id for one in batch])
        end()
        return [AlreadyTaken(one.task_id) for one in batch]

    one = SimpleNamespace(task_id="a", message=SimpleNamespace(body=b""))
    some = Batches(write, lambda: None)
    assert some.put(one)

    assert some.wait_decided(PATIENCE)
    assert some.decided() == [(one, True)]
    assert written == [["a"], ["a"]]
    some.close()
    some.join()


def test_a_shard_whose_watch_has_ended_comes_back(at_once):
    pauses = SimpleNamespace(next=lambda: 0.0)
    shard = Shard(shard_steps=SimpleNamespace(counts=ending(1)), up_at=0.0, pauses=pauses)
    back = threading.Event()
    Away(threading.Event(), back.set).add([shard])
    assert back.wait(PATIENCE)
    assert shard.up_at == 0.0
