"""Several processes write the runs of the same rules; few of these are computed twice."""

from datetime import timedelta

import pytest

from celery_delayq.contrib.rules import writing
from tests.rules.test_rules import runs, set_back, write

COUNT = 20


@pytest.fixture
def due(delayq, report, redis):
    """The names of rules at which a writer has to look."""
    names = [f"r{number}" for number in range(COUNT)]
    for name in names:
        delayq.every(name, report.s(), timedelta(hours=1), missed="none")
        set_back(delayq, redis, name, minutes=1)
    return names


def test_a_writer_leaves_out_what_another_one_has_written_meanwhile(delayq, due, monkeypatch):
    computed, look_at = [], writing.look_at

    def beside_another(*arguments):
        computed.append(arguments)
        if len(computed) == 1:
            monkeypatch.setattr(writing, "look_at", look_at)
            write(delayq)  # what another process does
            monkeypatch.setattr(writing, "look_at", beside_another)
        return look_at(*arguments)

    monkeypatch.setattr(writing, "look_at", beside_another)
    write(delayq)

    shards = len(delayq.services.entries.shards)
    assert len(computed) <= shards * COUNT / writing.SHARE
    assert all(len(runs(delayq, name)) == 1 for name in due)
