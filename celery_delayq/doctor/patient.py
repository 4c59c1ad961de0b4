"""Whom the doctor looks at: an app's services, its store's Redis, and what that says of itself."""

from __future__ import annotations

from functools import cached_property

from ..errors import StoreError, StoreUnavailable
from ..logs import plain
from ..servers import Connection, packed
from ..servers.facts import Facts
from ..servers.risks import ERROR, WARNING, Line
from ..services import Services


class Patient:
    """An app whose store and broker are looked at.

    Attributes:
        services: The app's.
        connection: To the store's Redis, used by nobody else.
        wrong: The names of the lines so far that are errors.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self.wrong: set[str] = set()
        self.connection: Connection = services.connect()

    @cached_property
    def server(self) -> Facts:
        """What the store's Redis says of itself."""
        return Facts.ask(self.connection)

    def why_away(self) -> Line | None:
        """What keeps one from asking the store's Redis anything."""
        try:
            self.connection.execute("doctor", packed(["PING"]))
        except StoreUnavailable as error:
            return Line(
                "store", ERROR,
                f"the store {self.services.endpoint.url} cannot be reached, so nothing can be "
                f"scheduled or handed over: {plain(error.why)}",
                f"see whether it runs, and whether the URL in delayq_url or broker_url, its "
                f"password and its certificate are right{self._and_of_groups}",
            )  # fmt: skip
        except StoreError:
            return None  # it is there; the rights tell of what is missing
        return None

    @property
    def _and_of_groups(self) -> str:
        return (
            "; so with master_name and sentinel_kwargs" if self.services.endpoint.may_move else ""
        )

    def close(self) -> None:
        self.connection.close()


def unknown(name: str, what: str, rights: str = "+info") -> Line:
    """A line on what the server does not tell, and the *rights* with which it would."""
    said = f"{what} is unknown: the store's Redis does not tell this user"
    return Line(name, WARNING, said, f"ask whoever runs it, or grant {rights}")
