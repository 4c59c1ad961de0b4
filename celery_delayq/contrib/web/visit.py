"""One request to the pages, with all that a view needs; and how a form leads to its answer.

    POST --> 303 --> /task?id=a&said=task+a+was+cancelled&status=200&sign=...
         |
         +-- what was typed is wrong: the page of the form, with field=... and typed.value=...

So Back and a reload never send a form again, and what a user typed stands in its field, beside the
reason why it is wrong. A URL has at most :data:`LONGEST` characters, as servers refuse longer ones;
a page whose URL would be longer is the result itself.

A URL has the figures of a step, or the answer to a change: "999,999 tasks were cancelled". No link
from elsewhere can claim what did not happen: they count only with a signature of all that the URL
says, of its view, of the user's name, and of when it was signed. The store keeps the secret for it,
32 random bytes that no page, dump or message shows; an emptied or resharded store has another one.

An answer says when it was given. Its URL also has the state that it left behind, ``then``; a view
that finds another state does not show it, so no page contradicts its answer.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from jinja2 import Environment
from werkzeug.exceptions import BadRequest, Forbidden
from werkzeug.routing import MapAdapter
from werkzeug.utils import redirect
from werkzeug.wrappers import Request, Response

from ...core.clock import from_ms
from ...core.errors import InvalidOption
from ...core.servers.risks import Line
from ...core.store import Counts
from ...core.threads import Once
from ...operations.cli.common import name_of
from .telling import tell

if TYPE_CHECKING:
    from ... import DelayQ

LONGEST = 3_500  # of a URL: gunicorn takes 4,094, with the path where the pages are mounted
LONGEST_KEPT = 100  # of a text that was typed, if a URL has no room for all
MOST_DIGITS = 18  # of a number: those of 64 bits
MOST_BACK = 1_000  # characters of a list's filter that its pages lead back to
#: What the URL of the list has, and the views to whose URLs it goes along.
_OF_LIST = (
    *("tag", "task", "queue", "state", "due", "after", "before", "text"),
    *("id", "key", "order", "zone", "cursor", "at"),
)
_BEHIND_LIST = ("task", "key", "selected", "everything", "work", "undo")

_SIGN, _ON = "sign", "on"
_RECENT = 12 * 3600  # seconds for which an answer says the time of day only
_FORGED = (
    "these pages did not make this link for you, or the store was emptied or resharded since; "
    "nothing was done: begin anew with the list of tasks"
)

_TYPED = "typed."
_MARK = 8  # characters of a task's mark

#: The page on which a view's form stands, and the values of its URL that the form's URL has.
_HOMES = {
    "task": ("id", "revision"),
    "key": ("key",),
    "paused": ("kind", "name"),
    "rules": ("only", "name", "tag", "after", "place"),
}
_WITHOUT_FIELDS = ("work", "undo")
_OF_MANY = ("selected", "everything")
#: The fields that are called otherwise than the options that they become.
_FIELDS = {"add_tags": "tags", "remove_tags": "tags", "queue": "name", "task": "name"}


class Answer(NamedTuple):
    """What came of the form that led to a page.

    Attributes:
        sentence: The answer; empty without one.
        status: The status of the page; 200 if what was asked was done.
        field: The name of the field in which something wrong was typed.
        typed: What was typed, by the names of the fields.
        when: When it was given; ``None`` without one.
        is_recent: Whether that was in the last hours.
        then: The state that it left behind; ``None`` if that does not matter.
    """

    sentence: str = ""
    status: int = 200
    field: str = ""
    typed: Mapping[str, str] = {}
    when: datetime | None = None
    is_recent: bool = True
    then: str | None = None

    @property
    def is_done(self) -> bool | None:
        """Whether it was done; ``None`` without an answer."""
        return self.status == 200 if self.sentence else None  # noqa: PLR2004


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
        unread: Returns a line for each queue that no worker reads; ``None`` if unknown.
        view: The name of the view; empty until it is found.
        answer: What came of the form that led here.
        once: What is read once for the whole page.
    """

    delayq: DelayQ
    request: Request
    paths: MapAdapter
    templates: Environment
    hides: bool
    unread: Callable[[], list[Line] | None]
    user: str = ""
    access: str = ""
    view: str = ""
    answer: Answer = NO_ANSWER
    once: Once = field(default_factory=Once)

    def secret(self) -> tuple[int, bytes]:
        """Return Redis's time, ms, and the store's secret, read once for all links of a page."""
        return self.once.read("secret", self.delayq.services.entries.secret)

    def unless_changed(self, now: str) -> Visit:
        """Return this visit; without its answer, if that left another state behind."""
        then = self.answer.then
        return self if then in (None, now) else replace(self, answer=NO_ANSWER)

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
    def counts(self) -> Counts:
        """The counts, read once for all that a page shows."""
        return self.once.read("counts", self.delayq.counts)

    @property
    def now(self) -> datetime:
        """The time by Redis's clock, the same for all that a page shows."""
        return from_ms(self.counts.now_ms)

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


def signed_url(visit: Visit, view: str, **values: Any) -> str:
    """Return the URL of a view, with a signature of its values, the user, and the time."""
    url = visit.url(view, **values, on=visit.secret()[0])
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    return f"{url}&{urlencode({_SIGN: _signature(visit, view, pairs)})}"


def check_signed(visit: Visit) -> Visit:
    """Return the visit with the time of its URL's signature, if the URL is what was signed.

    Raises:
        BadRequest: it has no signature, or that of other values.
    """
    args = visit.request.args
    pairs = [pair for pair in args.items(multi=True) if pair[0] != _SIGN]
    right = _signature(visit, visit.view, pairs)
    if not hmac.compare_digest(args.get(_SIGN, "").encode(), right.encode()):
        raise BadRequest(_FORGED)
    signed, now_ms = int(args[_ON]), visit.secret()[0]
    is_recent = (now_ms - signed) / 1000 < _RECENT
    answer = visit.answer._replace(when=from_ms(signed), is_recent=is_recent)
    return replace(visit, answer=answer)


def _signature(visit: Visit, view: str, pairs: Iterable[tuple[str, str]]) -> str:
    _, secret = visit.secret()
    signed = repr((visit.user, view, sorted(pairs, key=itemgetter(0))))
    return hmac.new(secret, signed.encode(), sha256).hexdigest()[:32]


class Mistyped(BadRequest):
    """The text in a field of a form is none of its kind."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


def led(visit: Visit, view: str, **values: Any) -> Response | None:
    """Lead to a page by a signed URL; ``None`` if that would be too long."""
    url = signed_url(visit, view, **values)
    return redirect(url, 303) if len(url) <= LONGEST else None


def answered(
    visit: Visit,
    view: str,
    show: Callable[[Visit], Response],
    sentence: str,
    status: int = 200,
    **values: Any,
) -> Response:
    """Lead to the page that says an answer; *show* returns it if its URL would be too long."""
    there = led(visit, view, **values, said=sentence, status=status)
    when = from_ms(visit.secret()[0])
    return there or show(replace(visit, answer=Answer(sentence, status, when=when)))


def answer_in(visit: Visit) -> Answer:
    """Return the answer that the URL has.

    Raises:
        BadRequest: these pages never gave it.
    """
    args = visit.request.args
    if "said" not in args:
        return NO_ANSWER
    signed = check_signed(visit).answer
    typed = {
        name.removeprefix(_TYPED): text for name, text in args.items() if name.startswith(_TYPED)
    }
    answer = Answer(args["said"], int(args["status"]), args.get("field", ""), typed)
    return answer._replace(when=signed.when, is_recent=signed.is_recent, then=args.get("then"))


def ask_again(
    visit: Visit, show: Callable[[Visit], Response], error: Exception, status: int
) -> Response:
    """Lead back to the form that was sent, with all that was typed, and the reason.

    Args:
        visit: The visit that sent the form.
        show: The view of the page on which the form stands.
        error: Why the form was refused.
        status: The status of the page.
    """
    form = visit.request.form
    typed = {name: text for name, text in form.items() if name not in ("one", "sure", "zone")}
    sentence = str(getattr(error, "description", None) or error)
    field = _field_of(visit, error, typed)
    if visit.view in _WITHOUT_FIELDS:
        raise error
    if visit.view in _HOMES:
        home, values = visit.view, dict[str, Any]()
        values |= {name: visit.request.args.get(name) for name in _HOMES[visit.view]}
    else:
        home = "tasks"
        values = {**visit.back, "marks": [mark_of(text) for text in form.getlist("one")]}
    texts = {f"{_TYPED}{name}": text for name, text in typed.items()}
    values |= {"said": sentence, "status": status, "field": field}
    there = led(visit, home, **values, **texts)
    if there is None and home == visit.view:
        return show(replace(visit, answer=Answer(sentence, status, field, typed)))
    # No value of a change of many is as long as that: it alone is lost.
    short = {name: text for name, text in texts.items() if len(text) <= LONGEST_KEPT}
    there = there or led(visit, home, **values, **short)
    if there is None:
        raise error
    return there


def mark_of(tick: str) -> str:
    """Return a short mark of a task that was ticked, which outlives a change of it."""
    return sha256(tick.partition(" ")[2].encode()).hexdigest()[:_MARK]


def _field_of(visit: Visit, error: Exception, typed: dict[str, str]) -> str:
    """Return the field on the page that the error is about; empty if it is about none."""
    if isinstance(error, Mistyped):
        name = error.field
    elif isinstance(error, InvalidOption):
        name = "value" if visit.view in _OF_MANY else error.name
    else:
        return ""
    if name == "value" and any(each.startswith("value-") for each in typed):
        return name  # each kind has a field of its own; the action says which
    is_shown = name != "action" or visit.view in _OF_MANY
    return next((each for each in (name, _FIELDS.get(name)) if each in typed and is_shown), "")
