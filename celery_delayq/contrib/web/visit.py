"""One request to the pages, with all that a view needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment
from werkzeug.exceptions import Forbidden
from werkzeug.routing import MapAdapter
from werkzeug.utils import redirect
from werkzeug.wrappers import Request, Response

from ...core.errors import InvalidOption
from ...operations.cli.zones import name_of
from ...operations.methods import Operations
from .telling import tell

MOST_DIGITS = 18  # of a number: those of 64 bits


class Face(Operations):
    """The methods of ``DelayQ`` that the page calls; the history's, as that is another leaf."""

    history: Callable[[int], list[Any]]


@dataclass(frozen=True)
class Visit:
    """One request to the pages.

    Attributes:
        delayq: The app's ``DelayQ``, whose methods are the operations.
        request: The request.
        paths: Builds the URLs of views.
        templates: The templates.
        user: The user's name, for the log.
        may_write: Whether the user may change tasks.
        hides: Whether arguments are never shown.
        unread: Returns a sentence for each queue that no worker reads; ``None`` if unknown.
        view: The name of the view; empty until it is found.
    """

    delayq: Face
    request: Request
    paths: MapAdapter
    templates: Environment
    hides: bool
    unread: Callable[[], list[str] | None]
    user: str = ""
    may_write: bool = False
    view: str = ""

    def url(self, view: str, **values: Any) -> str:
        """Return the URL of a view; it has the *values* that are not empty."""
        return self.paths.build(
            view, {name: value for name, value in values.items() if value not in ("", None, [], ())}
        )

    def number(self, name: str, default: int = 0) -> int:
        """Return a number that stands in the URL.

        Raises:
            InvalidOption: it is none.
        """
        text = self.request.args.get(name, str(default))
        if not text.isascii() or not text.isdigit() or len(text) > MOST_DIGITS:
            raise InvalidOption(name, text, "a whole number")
        return int(text)

    @property
    def zone_name(self) -> str:
        """The name of the zone of naive times, without the browser's script."""
        return name_of(self.delayq.services.timezone)

    def page(self, template: str, code: int = 200, **values: Any) -> Response:
        """Return a page."""
        text = self.templates.get_template(template).render(visit=self, **values)
        return Response(text, code, mimetype="text/html")

    def redirect(self, view: str, **values: Any) -> Response:
        """Send the browser to another view."""
        return redirect(self.url(view, **values), 303)

    def must_write(self) -> None:
        """Raise ``Forbidden`` unless the user may change tasks."""
        if not self.may_write:
            raise Forbidden("you may look, but not change anything; nothing was changed")

    def tell(self, action: str, target: dict[str, Any], answer: Any) -> None:
        """Log a change, and send the signal."""
        tell(self.delayq.services.app, self.user, action, target, answer)
