"""Servers as hosted services give them: with commands left out, or forbidden to the user."""

from tests.operations.restricted import documented
from tests.support.process import ChildProcess
from tests.support.redis_server import READY, RedisServer

# Commands that neither a Celery worker nor the store needs.
SPARE = (
    *("config", "info", "wait", "acl", "client", "memory", "debug", "command", "keys", "flushall"),
    *("flushdb", "latency", "slowlog", "monitor", "shutdown", "replicaof", "save", "bgsave"),
)
# Commands that a Celery worker needs of its broker, but the store does not.
CELERYS = ("script", "hello", "subscribe", "psubscribe", "publish")
USER, PASSWORD = "hosted", "pw"


class HostedServer(RedisServer):
    """A server that lacks some commands."""

    def __init__(self, *missing: str, **options):
        renamed = (word for name in missing for word in ("--rename-command", name, ""))
        super().__init__(*renamed, **options)

    def start(self):
        self._process = ChildProcess(self._command(), log=self.folder / "redis.log")
        self._process.wait_log(READY)

    def client(self, **options):
        return super().client(**{"protocol": 2, **options})  # 3 takes HELLO


def forbid(server: RedisServer, *rules: str) -> str:
    """Give a user these rights; returns the part of its URLs before the @."""
    rules = (USER, "reset", "on", f">{PASSWORD}", *rules)
    server.client().execute_command("ACL", "SETUSER", *rules)
    return f"{USER}:{PASSWORD}"


def all_but(*missing: str) -> list[str]:
    """Rights to all other commands."""
    return ["~*", "&*", "+@all", *(f"-{name}" for name in missing)]


def documented_but(*missing: str) -> list[str]:
    """The rights that the page lists for a user of the store, without the *missing* ones."""
    return [right for right in documented()[2:] if right not in {f"+{name}" for name in missing}]


def as_user(login: str, url: str) -> str:
    return url.replace("://", f"://{login}@")
