"""What of redis-py is leaned on beyond its documentation."""

from __future__ import annotations

from ..libraries import Leaning, has, mentions, takes

LEANS_ON = (
    Leaning(
        "redis:Connection.can_read",
        "a connection that is idle is looked at, and one whose answer is waited for",
        takes("timeout"),
    ),
    Leaning(
        "redis:Connection.repr_pieces",
        "a connection is told from one to an earlier master of its group",
        mentions("host", "port"),
    ),
    Leaning("redis:Connection.connect", "a connection is opened", takes()),
    Leaning("redis:Connection.disconnect", "a connection is closed", takes()),
    Leaning(
        "redis:Connection.send_packed_command",
        "a command is sent as it was packed here",
        takes("command", "check_health="),
    ),
    Leaning("redis:Connection.read_response", "reads an answer", takes()),
    Leaning("redis:Connection.send_command", "a scanner's subscription", takes("name", "channel")),
    Leaning(
        "redis.connection:AbstractConnection.__init__",
        "a call bounds its socket's time, and a scanner waits for one beside its timer",
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
