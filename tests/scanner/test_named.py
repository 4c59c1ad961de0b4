"""A log line names a lost server by its URL, without the password, and by its setting."""

import pytest
from celery import Celery

from celery_delayq import DelayQ
from celery_delayq.core.handover.making import _contacts

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
