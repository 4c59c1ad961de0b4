"""Checks whether the broker accepts messages, and which queues it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.errors import BrokerDown, InvalidSetting, StoreError
from ...core.handover.publishers import CONNECT_TIMEOUT, bounded, connect
from ...core.handover.relay import Link
from ...core.servers.connection import NO_BROKER, Connection
from ...core.servers.risks import ERROR, MOVES, OK, WARNING, Line, check_broker, masters
from ...core.services import Services
from ...core.store.keys import Keys
from ...core.text import plain

TIMEOUT = 3.0  # seconds that the broker has for an answer
NOT_FOUND = 404  # RabbitMQ's code for a missing queue
_DOES = {
    "amqp": "it confirms messages",
    "redis": "it answers each push",
    "sqs": "it answers each message",
}
_ANOTHER = "use RabbitMQ or a separate Redis as broker"
_UNCHECKED = "celery_delayq cannot check whether it keeps messages"


def unusable(services: Services) -> Line | None:
    """Return the error if the app's broker cannot be determined; this opens no connection.

    The error does not quote the URL: the unreadable part may be in its password.

    Raises:
        InvalidSetting: its URL cannot be read, or its transport options lack something.
    """
    try:
        _ = services.broker
    except InvalidSetting:
        raise
    except Exception as error:  # from kombu or any transport
        why = plain(error) if isinstance(error, ImportError) else type(error).__name__
        return Line(
            "broker", ERROR,
            f"broker_url cannot be read, or its transport cannot be loaded: {why}",
            "write special characters of a password as %XX, and install the transport's library, "
            "such as: pip install 'celery[sqs]'",
        )  # fmt: skip
    return None


def broker(
    services: Services, store: Connection | None = None, *, in_cluster: bool = False
) -> Iterator[Line]:
    """Check whether the broker accepts messages; its queues, on AMQP; its place in a Cluster.

    Args:
        services: The app's services.
        store: A connection to the store, if it is there.
        in_cluster: Whether the store is in a Redis Cluster.
    """
    wrong = "" if store is None else _wrong(services, store, in_cluster=in_cluster)
    if wrong:
        yield Line("broker", ERROR, plain(wrong), _ANOTHER)
        return
    count = masters(store) if store and in_cluster and services.store_is_broker else 1
    if count > 1:
        yield Line("broker", WARNING, MOVES % count, _ANOTHER)
    elif services.store_is_broker:
        yield Line("broker", OK, "the store's own Redis: a script moves a task into its queue")
    else:
        yield from _other(services)


def _wrong(services: Services, store: Connection, *, in_cluster: bool) -> str:
    """Return why a broker in the store's Cluster cannot be one; empty if it is not there."""
    ours, place = services.membership, Keys(services.settings.prefix)
    if in_cluster and services.store_is_broker and not ours.tagged:
        return NO_BROKER
    try:
        if ours.redis is not None:
            check_broker(store.at(place.slot), ours.redis, place["meta"], tagged=ours.tagged)
    except StoreError as error:
        return error.why
    return ""


def _other(services: Services) -> Iterator[Line]:
    where = f"{services.broker.kind} on {services.broker.hosts}"
    link = Link(services.app.connection_for_write, timeout=TIMEOUT)
    try:
        link.prepare()
    except BrokerDown as error:
        found = f"{where} accepts no messages, so due tasks wait: {plain(error.why)}"
        yield Line("broker", ERROR, found, "check that it runs, and that broker_url is right")
        return
    finally:
        link.close()
    does = _DOES.get(services.broker.transport, _UNCHECKED)
    yield Line("broker", OK, f"{where} is up, and {does}")
    if services.broker.transport == "amqp":
        yield from _queues(services)


def _queues(services: Services) -> Iterator[Line]:
    """Check which of the app's queues exist and have a consumer."""
    connection = bounded(services.app.connection_for_write(), TIMEOUT, CONNECT_TIMEOUT)
    refused: dict[str, str] = {}
    try:
        connect(connection, CONNECT_TIMEOUT)
        found = {name: _consumers(connection, name, refused) for name in services.app.amqp.queues}
    except Exception as error:
        yield Line("queues", WARNING, f"they cannot be checked: {plain(error)}",
                   "check the rights of the broker's user")  # fmt: skip
        return
    finally:
        connection.collect()
    missing = [name for name in found if found[name] is None and name not in refused]
    idle = [name for name, consumers in found.items() if consumers == 0]
    for name, why in refused.items():
        yield Line(
            "queues", WARNING, f"{plain(name)} cannot be checked: {why}",
            "check the rights of the broker's user, and whether another connection has it "
            "exclusively",
        )  # fmt: skip
    if idle:
        sentence = f"no worker listens to {', '.join(map(plain, idle))}"
        yield Line(
            "queues", WARNING, sentence, "start a worker with -Q, or remove them from the app"
        )
    if missing:
        sentence = f"{', '.join(map(plain, missing))}: created by the first message"
        yield Line("queues", OK, sentence)
    if not idle and not missing and not refused:
        yield Line("queues", OK, f"{', '.join(map(plain, found))}: a worker listens to each")


def _consumers(connection: Any, name: str, refused: dict[str, str]) -> int | None:
    """Return a queue's number of consumers; ``None`` if it is missing, or the broker *refused*."""
    channel = connection.channel()
    try:
        consumers: int = channel.queue_declare(name, passive=True).consumer_count
    except connection.channel_errors as error:  # this error closed the channel
        if getattr(error, "code", None) != NOT_FOUND:
            refused[name] = plain(error)
        return None
    channel.close()
    return consumers
