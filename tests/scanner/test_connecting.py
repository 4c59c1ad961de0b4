"""How long a scanner waits for a server whose packets vanish."""

import socket

import pytest

from celery_delayq import DelayQ
from celery_delayq.errors import BrokerDown, StoreUnavailable

MOST = 2.0  # seconds


@pytest.fixture
def patience(monkeypatch):
    """For how long each attempt to connect would have waited; none gets an answer."""
    waited = []

    def vanish(self, _address):
        waited.append(self.gettimeout())
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket.socket, "connect", vanish)
    return waited


@pytest.mark.parametrize("broker", ["amqp://127.0.0.1", "redis://127.0.0.1:6390"])
def test_a_scanner_gives_up_connecting_after_two_seconds(make_app, patience, broker):
    app = make_app(broker, delayq_url="redis://127.0.0.1:6391")
    scanner = DelayQ(app).scanner()
    shard = scanner._shards[0]
    for connect in (scanner._wakeup.listen, shard.steps.hand_over):
        with pytest.raises(StoreUnavailable):
            connect()
    with pytest.raises(BrokerDown):
        shard.relay._link.prepare()
    scanner._wakeup.close()
    assert len(patience) >= 3
    assert max(patience) <= MOST, patience
