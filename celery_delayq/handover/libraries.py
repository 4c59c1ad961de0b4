"""What of kombu and py-amqp the hand-over leans on beyond their documentation."""

from __future__ import annotations

from ..libraries import Leaning, mentions, takes

LEANS_ON = (
    Leaning(
        "kombu.transport.virtual:Channel._lookup",
        "a message that no queue would get is noticed",
        takes("exchange", "routing_key"),
    ),
    Leaning(
        "kombu.transport.redis:Channel.conn_or_acquire",
        "messages are pushed to a list many at a time",
        takes(),
    ),
    Leaning(
        "redis.sentinel:SentinelManagedConnection.read_response",
        "a group's master that has become a replica costs no task an attempt",
        mentions("ReadOnlyError", "ConnectionError"),
    ),
    Leaning("kombu:Connection.collect", "a broker connection is thrown away", takes()),
    Leaning("amqp:Channel.confirm_select", "the broker confirms messages", takes()),
    Leaning("amqp:Channel.__init__", "confirms and returns are listened to", mentions("events")),
    Leaning("amqp:Channel._on_basic_ack", "a confirm is heard", mentions("events", "basic_ack")),
    Leaning("amqp:Channel._on_basic_nack", "a refusal is heard", mentions("events", "basic_nack")),
    Leaning(
        "amqp:Channel._on_basic_return", "a return is heard", mentions("events", "basic_return")
    ),
)
