"""The pages: from a request to a response, whatever goes wrong.

request --> host, access, origin --> route --> view --> response with its headers
|                             |
+--> 403, 421                 +--> 400 a bad value, 409, 503 no Redis
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import cast

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
from ...core.services import HasServices
from ...core.text import counted, lasting, logger_of, plain
from ...operations.queues import Look
from . import bulk, guard, others, recurring, ticked, undone, views, words
from .answers import answer_in, ask_again
from .header import header
from .visit import Face, Visit

logger = logger_of(__name__)

VIEWS: dict[str, Callable[[Visit], Response]] = {
    "overview": views.overview,
    "state": views.state,
    "tasks": views.tasks,
    "task": views.task,
    "selected": ticked.selected,
    "everything": bulk.everything,
    "work": bulk.work,
    "undo": undone.undo,
    "paused": others.paused,
    "key": others.key,
    "history": others.history,
    "rules": recurring.rules,
    "queues": others.queues,
}

_RULES = [
    Rule("/", endpoint="overview", methods=["GET"]),
    Rule("/state", endpoint="state", methods=["GET"]),
    Rule("/tasks", endpoint="tasks", methods=["GET"]),
    Rule("/task", endpoint="task", methods=["GET", "POST"]),
    Rule("/selected", endpoint="selected", methods=["GET", "POST"]),
    Rule("/all", endpoint="everything", methods=["GET", "POST"]),
    Rule("/work", endpoint="work", methods=["GET", "POST"]),
    Rule("/undo", endpoint="undo", methods=["GET", "POST"]),
    Rule("/paused", endpoint="paused", methods=["GET", "POST"]),
    Rule("/key", endpoint="key", methods=["GET", "POST"]),
    Rule("/history", endpoint="history", methods=["GET"]),
    Rule("/rules", endpoint="rules", methods=["GET", "POST"]),
    Rule("/queues", endpoint="queues", methods=["GET"]),
    Rule("/static/<name>", endpoint="static", methods=["GET"]),
]
_KINDS = {"page.css": "text/css", "page.js": "text/javascript"}
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
        self._delayq = cast(Face, delayq)
        self._hides = hides
        self._trusted, self._hosts = tuple(trusted), tuple(hosts)
        self._unread = Look(delayq.services, LOOK_EVERY)
        self._rules = Map([rule.empty() for rule in _RULES], merge_slashes=False)

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
        view = VIEWS[endpoint]
        if visit.request.method in guard.SAFE:
            return view(replace(asked, answer=answer_in(asked)))
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
    made.filters.update(counted=counted, lasting=lasting, time=words.time, from_ms=from_ms)
    hashes = {name: sha256(content).hexdigest()[:12] for name, content in _static().items()}
    made.globals.update(hashes=hashes, again=AGAIN, header=header, every=recurring.RUNS)
    return made
