"""The store, reached as a Redis user that has exactly the rights in the documentation."""

from celery_delayq.core.servers.connection import Connection
from celery_delayq.core.servers.endpoint import Endpoint
from tests.readme.document import page
from tests.store.support import CLOCK, NOW_MS, Store


def documented(*, doctor: bool = False) -> list[str]:
    """The rights in the page's line for ``ACL SETUSER``, or in its second one, the doctor's."""
    lines = [block.text.split() for block in page("operate/redis").written_in("text")]
    first, second = [line[3:] for line in lines if line[:2] == ["ACL", "SETUSER"]]
    return second if doctor else first


class RestrictedStore(Store):
    """A store for a user with *rule*, plus rights to the queue's list and the tests' clock."""

    def __init__(self, server, rule):
        self._root = server.client()
        self._root.execute_command("ACL", "SETUSER", "delayq", "reset", *rule)
        self.allow("~celery", f"~{CLOCK}", "+get")
        self._where = Endpoint(path=server.socket, db=3, username="delayq", password="secret")
        super().__init__(server)
        self.raw.close()
        self.raw = server.client(db=3)
        self.set_ms(NOW_MS)

    def allow(self, *rights: str) -> None:
        """Change the user's rights: ``allow("-zadd")`` takes one away."""
        self._root.execute_command("ACL", "SETUSER", "delayq", *rights)

    def close(self) -> None:
        super().close()
        for client in (self.raw, self._root):
            client.close()

    def _client(self):
        return Connection(self._where)
