"""What of redis-py is leaned on beyond its documentation."""

from __future__ import annotations

import inspect
from typing import Any

from ..libraries import Expectation, Leaning, has, mentions, takes


def _declares(*names: str) -> Expectation:
    """Takes these, each by its own name."""

    def wrong(found: Any) -> str:
        declared = inspect.signature(found).parameters
        missing = [name for name in names if name not in declared]
        return f"does not declare {', '.join(missing)}" if missing else ""

    return wrong


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
        "redis:SSLConnection.__init__",
        "a wrong word for TLS is refused",
        _declares("ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname"),
    ),
    Leaning(
        "redis:Redis.__init__",
        "a wrong word for sentinels is refused",
        _declares("username", "password", "credential_provider", "socket_timeout", "ssl_ca_certs"),
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
