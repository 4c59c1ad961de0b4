"""A worker's words about runs that hold keys, and the thread that sends them."""

import threading
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from celery.app.task import Context
from celery.signals import task_received, task_revoked, worker_shutdown

from celery_delayq.contrib import held
from celery_delayq.contrib.held import _REFUSALS, AT_A_TIME, HoldingStep, Reporter
from celery_delayq.core import clock
from celery_delayq.core.message.headers import Hold, ms_until
from celery_delayq.core.store.keys import shard_of
from celery_delayq.errors import StoreUnavailable
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries

HOLD = Hold("a", "k", "1.2", 5000)


@pytest.fixture
def sent():
    return []


def said(sent):
    """All words, in their order."""
    return [word for words in sent for word in words]


@pytest.fixture
def away():
    """Keys whose shard is down."""
    return set()


@pytest.fixture
def reporter(sent, away):
    def hold(words, _until):
        if away & {key for _, key, *_ in words}:
            raise StoreUnavailable("hold", "away")
        sent.append(words)

    settings, entries = SimpleNamespace(timeout=1, shards=2), SimpleNamespace(hold=hold)
    services = SimpleNamespace(settings=settings, entries=entries)
    one = Reporter(services)
    yield one
    one.stop()


def test_all_words_are_sent_in_their_order_before_it_has_stopped(reporter, sent):
    for number in range(250):
        reporter.has_ended(HOLD._replace(id=str(number)))
    reporter.stop()
    assert max(map(len, sent)) <= AT_A_TIME
    assert [word[0] for word in said(sent)] == [*map(str, range(250))]


def test_a_reporter_begins_anew_after_it_has_stopped(reporter, sent):
    for _ in range(2):
        reporter.goes_on(HOLD)
        reporter.stop()
    assert sent == [[("a", "k", "1.2", 5000, 0)]] * 2


def test_a_shard_that_is_away_holds_up_the_words_of_no_other_and_gets_its_own_later(
    reporter, sent, away, limits, caplog
):
    limits(held_again_s=0.01)
    a, b = (next(k for k in "abcdefgh" if shard_of(k, 2) == shard) for shard in (0, 1))
    away.add(a)
    for key in (a, b, a):
        reporter.has_ended(HOLD._replace(key=key))
    eventually(lambda: sent)
    assert sent == [[("a", b, "1.2", 0, 0)]]

    away.clear()
    eventually(lambda: len(sent) > 1)
    reporter.stop()
    assert said(sent[1:]) == [("a", a, "1.2", 0, 0)] * 2
    assert "words about held keys wait for the store: hold failed" in caplog.text


def test_a_word_just_before_the_stop_is_sent(reporter, sent, monkeypatch):
    class Late(threading.Thread):
        """Runs only once its reporter has begun to stop."""

        def start(self):
            pass

        def join(self, timeout=None):
            super().start()
            super().join(timeout)

    monkeypatch.setattr(held.threading, "Thread", Late)
    reporter.has_ended(HOLD)
    reporter.stop()
    assert sent == [[("a", "k", "1.2", 0, 0)]]


@pytest.mark.parametrize(("when", "more"), [(None, 0), (2, 2000), (0.5, 500), (-1, 0)])
def test_a_retry_s_countdown_is_added(reporter, sent, when, more):
    reporter.goes_on(HOLD, when)
    reporter.stop()
    assert sent == [[("a", "k", "1.2", 5000 + more, 0)]]


LONG = HOLD._replace(ms=3_600_000)
LEASED = ("a", "k", "1.2", 600_000, 1)


@pytest.fixture
def pass_time(limits, monkeypatch):
    """The clock stands still; ``pass_time(seconds)`` moves it, and the next words are due then."""
    limits(held_renew_s=0.01)
    now = [clock.monotonic()]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])

    def pass_time(seconds):
        now[0] += seconds

    return pass_time


def test_a_run_under_a_lease_is_told_of_again_until_it_has_ended(reporter, sent, pass_time):
    reporter.runs(LONG)
    for count in (2, 3, 4):  # at once as it begins, and again
        eventually(lambda count=count: len(said(sent)) == count)
        pass_time(1)
    eventually(lambda: len(said(sent)) == 5)
    reporter.has_ended(LONG)
    pass_time(1)
    reporter.stop()
    assert said(sent) == [*[LEASED] * 5, ("a", "k", "1.2", 0, 0)]


def test_a_retry_holds_its_key_without_a_lease(reporter, sent, pass_time):
    reporter.runs(LONG)
    eventually(lambda: len(said(sent)) == 2)
    reporter.goes_on(LONG, 1)
    pass_time(1)
    reporter.runs(HOLD)  # shorter than a lease
    eventually(lambda: len(said(sent)) == 4)
    reporter.stop()
    told = said(sent)
    assert told[-2:] == [("a", "k", "1.2", 3_601_000, 0), ("a", "k", "1.2", 5000, 0)]


def test_no_lease_outlasts_the_time_for_which_it_is_held_at_the_longest(
    reporter, sent, limits, pass_time
):
    limits(held_lease_s=0.3)
    reporter.runs(HOLD._replace(ms=500))
    eventually(lambda: len(said(sent)) == 2)
    pass_time(0.4)
    eventually(lambda: reporter._leased == {})
    reporter.stop()
    *_, before, last = said(sent)
    assert before == ("a", "k", "1.2", 300, 1)
    assert last == ("a", "k", "1.2", 100, 1)


def test_a_retry_s_time_counts_from_now():
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    for when in (soon, soon.isoformat(), soon.replace(tzinfo=None)):
        assert 0 < ms_until(when) <= 3_600_001
    assert ms_until(soon - timedelta(hours=2)) == 0


@pytest.mark.parametrize("when", ["tomorrow", [5], float("nan"), float("inf"), 10**400])
def test_a_retry_of_a_task_s_own_making_counts_as_now(when):
    assert ms_until(when) == 0


WRONG = [
    *(None, "x", 5, {}, {"id": "a"}),
    *(
        {**HOLD._asdict(), **wrong}
        for wrong in (
            *({"id": "b"}, {"ms": "5"}, {"ms": 0}, {"ms": 10**18}, {"key": 5}, {"more": 5}),
            *({"key": "\ud800"}, {"delivery": "\ud800"}),
        )
    ),
]


@pytest.mark.parametrize("told", WRONG)
def test_a_header_that_is_wrong_or_another_task_s_says_nothing(told):
    assert Hold.of(told, "a") is None


def test_a_header_of_an_id_that_is_no_unicode_says_nothing():
    assert Hold.of(HOLD._asdict(), "a") == HOLD
    assert Hold.of(HOLD._replace(id="\ud800")._asdict(), "\ud800") is None


@pytest.fixture
def begin(app):
    """Let a worker's consumer begin: ``begin()``."""
    yield lambda: HoldingStep(SimpleNamespace(app=app, **dict.fromkeys(_REFUSALS, print)))
    for signal in (task_received, task_revoked, worker_shutdown):
        signal.disconnect(dispatch_uid=f"{held.__name__}:{id(app)}")


def test_a_worker_that_stops_stops_its_reporter(begin, monkeypatch):
    stopped = []

    class Noted(Reporter):
        def stop(self, **_):
            stopped.append(self)

    monkeypatch.setattr(held, "Reporter", Noted)
    begin()
    begin()
    worker_shutdown.send(sender=None)
    assert len(stopped) == 1


def test_a_worker_hears_of_a_cancelled_task_that_its_app_does_not_have(begin, caplog):
    begin()
    task_revoked.send(sender="gone", request=Context({"id": "a"}))
    assert caplog.messages == []
