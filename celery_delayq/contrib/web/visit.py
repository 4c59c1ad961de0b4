"""One request to the pages, with all that a view needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode

from jinja2 import Environment
from werkzeug.exceptions import Forbidden
from werkzeug.routing import MapAdapter
from werkzeug.utils import redirect
from werkzeug.wrappers import Request, Response

from ...core.errors import InvalidOption
from ...operations.cli.common import name_of
from ...operations.methods import Operations
from .telling import tell

MOST_DIGITS = 18  # of a number: those of 64 bits
MOST_BACK = 1_000  # characters of a list's filter that its pages lead back to
#: What the URL of the list has, and the views to whose URLs it goes along.
_OF_LIST = (
    *("tag", "task", "queue", "state", "after", "before", "text"),
    *("id", "key", "order", "zone", "cursor", "at"),
)
_BEHIND_LIST = ("task", "key", "selected", "everything", "work", "undo")


class Answer(NamedTuple):
    """What came of the form that led to a page.

    Attributes:
        sentence: The answer; empty without one.
        status: The status of the page; 200 if what was asked was done.
        field: The name of the field in which something wrong was typed.
        typed: What was typed, by the names of the fields.
    """

    sentence: str = ""
    status: int = 200
    field: str = ""
    typed: Mapping[str, str] = {}

    @property
    def is_done(self) -> bool | None:
        """Whether it was done; ``None`` without an answer."""
        return self.status == 200 if self.sentence else None  # noqa: PLR2004


class Face(Operations):
    """The methods of ``DelayQ`` that the page calls; those of other leaves, too."""

    history: Callable[..., list[Any]]
    rule: Callable[..., Any]
    undo: Callable[..., Any]
    undo_all: Callable[..., Any]


NO_ANSWER = Answer()


@dataclass(frozen=True)
class Visit:
    """One request to the pages.

    Attributes:
        delayq: The app's ``DelayQ``, whose methods are the operations.
        request: The request.
        paths: Builds the URLs of views.
        templates: The templates.
        user: The user's name, for the log.
        access: What the user may do, ``"write"`` or ``"read"``; empty until that is known.
        hides: Whether arguments are never shown.
        unread: Returns a sentence for each queue that no worker reads; ``None`` if unknown.
        view: The name of the view; empty until it is found.
        answer: What came of the form that led here.
    """

    delayq: Face
    request: Request
    paths: MapAdapter
    templates: Environment
    hides: bool
    unread: Callable[[], list[str] | None]
    user: str = ""
    access: str = ""
    view: str = ""
    answer: Answer = NO_ANSWER

    def url(self, view: str, **values: Any) -> str:
        """Return the URL of a view; it has the *values* that are not empty, and the way back."""
        if view in _BEHIND_LIST:
            values["back"] = self._way_back
        return self.paths.build(
            view, {name: value for name, value in values.items() if value not in ("", None, [], ())}
        )

    @cached_property
    def _way_back(self) -> str:
        return urlencode(self.back, doseq=True)

    @cached_property
    def back(self) -> dict[str, list[str]]:
        """What the URL of the list has from which the user came: filters, zone, and place."""
        args = self.request.args
        whole = args.to_dict(flat=False) if self.view == "tasks" else parse_qs(args.get("back", ""))
        kept = {name: [text for text in whole.get(name, ()) if text] for name in _OF_LIST}
        kept = {name: texts for name, texts in kept.items() if texts}
        return kept if len(urlencode(kept, doseq=True)) <= MOST_BACK else {}

    @property
    def back_url(self) -> str:
        """The URL of the list from which the user came."""
        return self.url("tasks", **self.back)

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

    @property
    def may_write(self) -> bool:
        """Whether the user may change tasks."""
        return self.access == "write"

    def page(self, template: str, code: int | None = None, **values: Any) -> Response:
        """Return a page; its status is by default that of the answer."""
        code = self.answer.status if code is None else code
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
