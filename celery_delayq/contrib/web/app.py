"""The pages: from a request to a response, whatever goes wrong.

request --> host, access, origin --> route --> view --> response with its headers
|                             |
+--> 403, 421                 +--> 400 a bad value, 409, 503 no Redis

The head of each page says the app, its store, and whether tasks are delivered in time. ``wsgi``
returns the pages as an application, to mount in a site that has a login.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from werkzeug.exceptions import BadRequest, Forbidden, HTTPException, NotFound
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from ...core.clock import from_ms
from ...core.errors import (
    DelayQError,
    InvalidDueTime,
    InvalidOption,
    InvalidSetting,
    NoDelayQ,
    StoreError,
)
from ...core.hooks import acting_as
from ...core.servers.risks import ERROR, NOTE, Line
from ...core.services import HasServices
from ...core.text import counted, lasting, logger_of, plain
from ...core.threads import AT_ONCE, gather
from ...operations.health import lines
from ...operations.queues import Look
from . import chart, guard, many, past, store_views, views, words
from .visit import Visit, answer_in, ask_again

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from ... import DelayQ

logger = logger_of(__name__)


class Header(NamedTuple):
    """What the head of a page says.

    Attributes:
        app: The app's name.
        store: The URL of its Redis, without secrets.
        lines: What ``health`` says, problems first; ``None`` if Redis is away.
        counts: The number of dead and of refused tasks.
        now: The time of the answer by Redis's clock; ``None`` if it is away.
    """

    app: str
    store: str
    lines: Sequence[Line] | None = None
    counts: Mapping[str, int] = {}
    now: datetime | None = None

    @property
    def state(self) -> str:
        """The health in words."""
        if self.lines is None:
            return "Redis is away"
        first, *rest = [line.sentence for line in self.lines] or ["Tasks are delivered in time"]
        more = f" (and {len(rest)} more)" if rest else ""
        return f"{first}{more}"

    @property
    def alarm(self) -> str:
        """What is wrong in two words, for the title; empty if nothing is."""
        if self.lines is None:
            return "Redis is away"
        if dead := self.counts.get("dead"):
            return f"{dead:,} dead"
        if any(line.is_problem for line in self.lines):
            return "not delivered in time"
        return "paused" if self.lines else ""

    @property
    def short(self) -> str:
        """The health in a few words."""
        more = len(self.lines or ()) - 1
        return (self.alarm or "in time") + (f", {more} more" if more > 0 else "")

    @property
    def look(self) -> str:
        """The class of its style."""
        if self.lines is None or any(line.is_problem for line in self.lines):
            return "red"
        return "amber" if self.lines else "green"


class Alarm(NamedTuple):
    """A line of ``health`` on the overview, with the button that leads to what it is about."""

    look: str
    what: str
    why: str
    button: str
    url: str


_BUTTONS = {
    "dead": ("Look at the dead", "tasks", {"state": "DEAD"}),
    "overdue": ("Look at the tasks", "tasks", {}),
    "refused": ("Look at the tasks", "tasks", {}),
    "pauses": ("Pause or resume", "paused", {}),
    "unknown": ("Look at these", "tasks", {"state": "UNKNOWN"}),
    "rules": ("Look at the rules", "rules", {}),
}


def alarms_of(visit: Visit, head: Header, died: str) -> list[Alarm]:
    """Return what the head of a page says, line by line; *died* is why a task did."""
    found = []
    for line in head.lines or ():
        button, view, values = _BUTTONS.get(line.name, ("", "", {}))
        what = f"{line.found[:1].upper()}{line.found[1:]}"
        if count := head.counts.get(line.name):
            what = f"{line.name.capitalize()}: {count:,}"
        url = visit.url(view, **values) if view else ""
        look = "red" if line.is_problem else "amber"
        # With a button, nobody needs the command.
        why = died if line.name == "dead" else "" if url else line.advice
        found.append(Alarm(look, what, why, button, url))
    return found


def header(visit: Visit, *, is_away: bool) -> Header:
    """Return the head of a page, which is read beside what the page shows."""
    return visit.once.read("away" if is_away else "head", partial(_header, visit, is_away=is_away))


def _header(visit: Visit, *, is_away: bool) -> Header:
    """Read the head of a page.

    Args:
        visit: The visit.
        is_away: Redis did not answer a moment ago, so it is not asked again.
    """
    services = visit.delayq.services
    facts = Header(services.app.main or "Celery", "")
    try:
        facts = facts._replace(store=services.endpoint.url)
        if is_away:
            return facts
        counts = visit.counts
        found = [*lines(services), *(visit.unread() or ())]
        problems = [line for line in found if line.is_problem]
        notes = [line for line in found if line.level == NOTE]
    except StoreError:
        return facts
    except DelayQError as error:  # of the settings
        return facts._replace(lines=[Line("settings", ERROR, str(error))])
    return facts._replace(
        lines=[*problems, *notes],
        counts={"dead": counts.dead, "refused": counts.refused},
        now=visit.now,
    )


_READ, _CHANGE = ["GET"], ["GET", "POST"]
VIEWS: dict[str, tuple[str, list[str], Callable[[Visit], Response]]] = {
    "overview": ("/", _READ, views.overview),
    "state": ("/state", _READ, views.state),
    "tasks": ("/tasks", _READ, views.tasks),
    "task": ("/task", _CHANGE, views.task),
    "selected": ("/selected", _CHANGE, many.selected),
    "everything": ("/all", _CHANGE, many.everything),
    "work": ("/work", _CHANGE, many.work),
    "undo": ("/undo", _CHANGE, many.undo),
    "paused": ("/paused", _CHANGE, store_views.paused),
    "key": ("/key", _CHANGE, store_views.key),
    "keys": ("/keys", _READ, store_views.held),
    "history": ("/history", _READ, past.history),
    "rules": ("/rules", _CHANGE, store_views.rules),
    "queues": ("/queues", _READ, store_views.queues),
    "load": ("/load", _READ, chart.load),
}
_KINDS = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "alarm.svg": "image/svg+xml",
}
MAX_FORM = 1_000_000  # bytes of a form
LOOK_EVERY = 60.0  # seconds until the queues that no worker reads are looked up again
AGAIN = 5  # seconds after which a page without Redis loads again


class Pages:
    """The pages of one app.

    Args:
        delayq: The app's ``DelayQ``.
        hides: Whether arguments are never shown.
        trusted: Other origins whose forms may change tasks.
        hosts: The names under which the pages can be reached; none: any.
    """

    def __init__(
        self,
        delayq: HasServices,
        *,
        hides: bool = False,
        trusted: Iterable[str] = (),
        hosts: Iterable[str] = (),
    ) -> None:
        self._delayq = cast("DelayQ", delayq)
        self._hides = hides
        self._trusted, self._hosts = tuple(trusted), tuple(hosts)
        self._unread = Look(delayq.services, LOOK_EVERY)
        rules = [Rule(path, endpoint=name, methods=how) for name, (path, how, _) in VIEWS.items()]
        rules.append(Rule("/static/<name>", endpoint="static", methods=_READ))
        self._rules = Map(rules, merge_slashes=False)

    def respond(
        self, request: Request, allow: Callable[[], object], user: Callable[[], str]
    ) -> Response:
        """Answer a request.

        Args:
            request: The request.
            allow: Returns ``"write"``, ``"read"``, or anything else to refuse it.
            user: Returns the user's name; called only if the request is not refused.
        """
        request.max_content_length = MAX_FORM
        visit = Visit(
            delayq=self._delayq,
            request=request,
            # Of the Host nothing is used: all URLs on the pages are paths.
            paths=self._rules.bind(
                "", request.root_path, path_info=request.path, default_method=request.method
            ),
            templates=_templates(),
            hides=self._hides,
            unread=self._unread,
        )
        at_once = AT_ONCE.set(request.method in guard.SAFE)
        try:
            visit = self._admitted(visit, allow)
            response = self._answer(visit, user)
        except HTTPException as error:
            response = _refused(visit, error)
        except StoreError as error:
            response = visit.page(
                "error.html", 503, title="Redis is away", said=str(error), is_away=True
            )
            response.headers["Retry-After"] = str(AGAIN)
        except (InvalidSetting, NoDelayQ) as error:
            headless = replace(visit, access="")
            response = headless.page("error.html", 500, title="Not configured", said=str(error))
        except (InvalidOption, InvalidDueTime) as error:
            response = visit.page("error.html", 400, title="Not understood", said=str(error))
        except DelayQError as error:
            response = visit.page("error.html", 409, title="Not done", said=str(error))
        finally:
            AT_ONCE.reset(at_once)
        return guard.secure(response)

    def _admitted(self, visit: Visit, allow: Callable[[], object]) -> Visit:
        """Return the visit with what the user may do.

        Raises:
            HTTPException: the user may do nothing, or the request comes from elsewhere.
        """
        guard.check_host(visit.request, self._hosts)
        access = allow()
        if access not in ("write", "read"):
            if access is not None:
                logger.error("allow returned %r; expected 'write', 'read' or None", access)
            raise Forbidden("these pages are closed to you")
        guard.check_origin(visit.request, self._trusted)
        return replace(visit, access=str(access))

    def _answer(self, visit: Visit, user: Callable[[], str]) -> Response:
        endpoint, found = visit.paths.match()
        if endpoint == "static":
            return self._file(**found)
        asked = replace(visit, user=user(), view=endpoint)
        _, _, view = VIEWS[endpoint]
        if visit.request.method in guard.SAFE:
            asked = replace(asked, answer=answer_in(asked))
            _, response = gather(partial(header, asked, is_away=False), partial(view, asked))
            return cast(Response, response)
        asked.must_write()
        try:
            with acting_as(asked.user):
                return view(asked)
        except (StoreError, InvalidSetting, NoDelayQ):
            raise
        except (BadRequest, InvalidOption, InvalidDueTime) as error:
            return ask_again(asked, view, error, 400)
        except DelayQError as error:
            return ask_again(asked, view, error, 409)

    @staticmethod
    def _file(name: str) -> Response:
        if name not in _KINDS:
            raise NotFound
        response = Response(_static()[name], mimetype=_KINDS[name])
        # Its URL has a hash of its content.
        response.headers["Cache-Control"] = "private, max-age=31536000, immutable"
        return response


def _refused(visit: Visit, error: HTTPException) -> Response:
    if isinstance(error.response, Response):  # raised by `allow`
        return error.response
    sentence = plain(error.description or error.name)
    page = visit.page("error.html", error.code or 500, title=error.name, said=sentence)
    for name, value in error.get_headers(visit.request.environ):
        if name not in ("Content-Type", "Content-Length"):
            page.headers[name] = value
    return page


@cache
def _static() -> dict[str, bytes]:
    folder = files(__package__) / "static"
    return {name: (folder / name).read_bytes() for name in _KINDS}


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Characters that would reorder or hide others on the page are shown as escapes.
        finalize=lambda value: value if isinstance(value, Markup) else plain(value),
    )
    made.filters.update(
        counted=counted, lasting=lasting, time=words.time, times_in=words.times_in, from_ms=from_ms
    )
    hashes = {name: sha256(content).hexdigest()[:12] for name, content in _static().items()}
    made.globals.update(
        hashes=hashes, again=AGAIN, header=header, alarms_of=alarms_of, every=store_views.RUNS
    )
    return made


def wsgi(
    delayq: HasServices,
    *,
    allow: Callable[[Request], str | None],
    user: Callable[[Request], str] | None = None,
    hide_arguments: bool = False,
    trusted_origins: Iterable[str] = (),
    hosts: Iterable[str] = (),
) -> WSGIApplication:
    """Return the pages as a WSGI application, which works under any path.

    Args:
        delayq: The app's ``DelayQ``.
        allow: Called with each request, a ``werkzeug.Request``. Returns ``"write"`` or ``"read"``;
            anything else closes the pages to this request. It may raise Werkzeug's exceptions, such
            as ``abort(401)``.
        user: Returns the user's name for the log; by default ``REMOTE_USER``, or the address.
        hide_arguments: Never show the tasks' arguments.
        trusted_origins: Other origins whose forms may change tasks, such as
            ``https://admin.example.com``: for proxies that change the ``Host``, and browsers that
            send no ``Sec-Fetch-Site``.
        hosts: The names under which the pages can be reached; by default any.
    """
    pages = Pages(delayq, hides=hide_arguments, trusted=trusted_origins, hosts=hosts)
    name_of = user or _name_of

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        response = pages.respond(request, partial(allow, request), partial(name_of, request))
        return response(environ, start_response)

    return application


def _name_of(request: Request) -> str:
    return request.remote_user or request.remote_addr or "unknown"
