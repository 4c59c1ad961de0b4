"""How log lines name a server, and how long a scanner waits for one whose packets vanish."""

import socket

import pytest
from celery import Celery

from celery_delayq import DelayQ
from celery_delayq.core.handover.scanner import _contacts
from celery_delayq.errors import BrokerDown, StoreUnavailable

NAMED = {"master_name": "mymaster"}


def contacts_of(app):
    store, broker = _contacts(DelayQ(app).services)
    return f"{store._what} of {store._setting}", f"{broker._what} of {broker._setting}"


@pytest.mark.parametrize(
    ("broker", "url", "store", "where"),
    [
        (
            "redis://u:hunter2@red:1/2",
            None,
            "store redis://red:1/2 of broker_url",
            "broker redis://red:1/2 of broker_url",
        ),
        (
            "amqp://u:hunter2@rabbit//",
            "rediss://:hunter2@red",
            "store rediss://red:6379/0 of delayq_url",
            "broker amqp://rabbit:5672// of broker_url",
        ),
        (
            "amqp://u:hunter2@a:1//;amqp://u:hunter2@b:2/shop",
            "redis+socket:///run/redis.sock",
            "store redis+socket:///run/redis.sock?virtual_host=0 of delayq_url",
            "broker amqp://a:1//;amqp://b:2/shop of broker_url",
        ),
        (
            "sentinel://u:hunter2@a;sentinel://b",
            None,
            "store sentinel://a:26379;b:26379/0 (mymaster) of broker_url",
            "broker sentinel://a:26379;b:26379/0 (mymaster) of broker_url",
        ),
    ],
)
def test_store_and_broker_are_named_without_a_password(make_app, broker, url, store, where):
    app = make_app(broker, delayq_url=url, broker_transport_options=NAMED)
    assert contacts_of(app) == (store, where)


@pytest.mark.usefixtures("make_app")
def test_a_setting_is_named_as_it_was_written():
    app = Celery("shop", set_as_current=False)
    conf = {"CELERY_BROKER_URL": "amqp://rabbit//", "CELERY_DELAYQ_URL": "redis://red"}
    app.config_from_object(conf, namespace="CELERY")
    assert contacts_of(app) == (
        "store redis://red:6379/0 of CELERY_DELAYQ_URL",
        "broker amqp://rabbit:5672// of CELERY_BROKER_URL",
    )


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
