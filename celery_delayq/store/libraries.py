"""What of redis-py the store leans on beyond its documentation."""

from __future__ import annotations

from ..libraries import Leaning, has, mentions, takes

LEANS_ON = (
    Leaning(
        "redis:ConnectionPool.get_connection",
        "every step of the store takes its connection there",
        takes(),
    ),
    Leaning("redis:ConnectionPool.release", "gives a connection back", takes("connection")),
    Leaning(
        "redis:Connection.send_packed_command",
        "a command is sent as it was packed here",
        takes("command", "check_health="),
    ),
    Leaning("redis:Connection.read_response", "reads an answer", takes()),
    Leaning("redis:Connection.send_command", "a scanner's blocking pop", takes("name", "key", "s")),
    Leaning(
        "redis.connection:AbstractConnection.__init__",
        "a scanner waits for a socket beside its timer",
        mentions("_sock"),
    ),
    Leaning(
        "redis:exceptions",
        "the relay knows by their names what a broker refuses",
        has(
            "OutOfMemoryError",
            "ReadOnlyError",
            "ClusterDownError",
            "MasterDownError",
            "TryAgainError",
        ),
    ),
)
