"""A scanner whose thread was ended goes on in another one, under a name that says so."""

import logging
import threading

import pytest

from celery_delayq.core import threads
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.core


@pytest.fixture
def ended(monkeypatch):
    """Start a scanner that ends in one of its passes; return it and its first name."""

    def start(made, number):
        scanner, passes = made.delayq.scanner(), []
        goes_on, name = scanner._pass, scanner._name

        def end():
            passes.append(threading.current_thread())
            if len(passes) == number:
                raise SystemExit(3)
            return goes_on()

        monkeypatch.setattr(scanner, "_pass", end)
        made.scanners.append(scanner)
        scanner.start()
        return scanner, name

    return start


def test_it_is_one_scanner_still_with_another_name_and_channel(house, ended, monkeypatch):
    monkeypatch.setattr(threads, "FIRST", 0.01)
    made = house(delayq_safety_interval=300)
    made.delayq.services.hooks.restarted = (restarted := []).append
    _, name = ended(made, 2)
    eventually(lambda: made.looked() == 1)

    made.task.delay_for(0)

    made.next_arrival()
    [there] = made.delayq.services.entries.scanners()
    assert (there.name, there.restarts) == (f"{name}-1", 1)
    assert restarted == [there.name]
    [channel] = made.client.pubsub_channels("*wake:*")
    assert channel.decode().endswith(there.name)


def test_a_stop_before_the_next_thread_begins_ends_it_at_once(house, ended, monkeypatch, caplog):
    monkeypatch.setattr(threads, "FIRST", 3600.0)
    monkeypatch.setattr(threads, "LONGEST", 3600.0)
    made = house()
    scanner, _ = ended(made, 1)
    said = eventually(lambda: [one for one in caplog.records if one.levelno == logging.CRITICAL])

    scanner.stop(PATIENCE)

    assert not scanner._thread.is_alive()
    assert "the thread delayq-scanner has ended: SystemExit(3)" in said[0].getMessage()
    assert made.delayq.services.entries.scanners() == []
