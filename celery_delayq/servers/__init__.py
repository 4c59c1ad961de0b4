"""The way to a Redis, and what it says of itself; nothing here knows what is kept there.

    Server: an Endpoint, or a leaf's group           where it is, and who may come in
            |
    Pool ---> Connection                             one command at a time, and its refusals
            |
    facts ---> risks; alone                          what it is, and what that may cost

``risks`` and ``facts`` are imported from their files, by the doctor and by a scanner that starts.
"""

from .alone import check_alone
from .connection import Connection, PooledConnection, packed, translated
from .credentials import Credentials
from .endpoint import Endpoint, Server
from .refusals import Refusal, is_replica, lacks_replicas, refusal_of
from .words import TLS, client_refuses, connection_refuses

__all__ = [
    "TLS",
    "Connection",
    "Credentials",
    "Endpoint",
    "PooledConnection",
    "Refusal",
    "Server",
    "check_alone",
    "client_refuses",
    "connection_refuses",
    "is_replica",
    "lacks_replicas",
    "packed",
    "refusal_of",
    "translated",
]
