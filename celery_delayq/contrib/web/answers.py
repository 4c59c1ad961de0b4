"""Leads from a form to the page that has its answer, so that no page is the result of a form.

    POST --> 303 --> /task?id=a&said=task+a+was+cancelled&status=200&sign=…
         |
         +-- what was typed is wrong: the page of the form, with field=… and typed.value=…

So Back and a reload never send a form again, and what a user typed stands in its field, beside the
reason why it is wrong. The URL is signed: see ``signed.py``. It has at most :data:`LONGEST`
characters, as servers refuse longer ones; a page whose URL would be longer is the result itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

from werkzeug.exceptions import BadRequest
from werkzeug.utils import redirect
from werkzeug.wrappers import Response

from ...core.errors import InvalidOption
from .signed import check_signed, signed_url
from .visit import NO_ANSWER, Answer, Visit

LONGEST = 3_500  # gunicorn takes 4,094, with the path where the pages are mounted
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


class Mistyped(BadRequest):
    """The text in a field of a form is none of its kind."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


def answered(
    visit: Visit, view: str, sentence: str, status: int = 200, **values: Any
) -> Response | None:
    """Lead to the page that says an answer; ``None`` if its URL would be too long."""
    url = signed_url(visit, view, **values, said=sentence, status=status)
    return redirect(url, 303) if len(url) <= LONGEST else None


def answer_in(visit: Visit) -> Answer:
    """Return the answer that the URL has.

    Raises:
        BadRequest: these pages never gave it.
    """
    args = visit.request.args
    if "said" not in args:
        return NO_ANSWER
    check_signed(visit)
    typed = {
        name.removeprefix(_TYPED): text for name, text in args.items() if name.startswith(_TYPED)
    }
    return Answer(args["said"], int(args["status"]), args.get("field", ""), typed)


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
    led = answered(visit, home, sentence, status, **values, **texts, field=field)
    if led is not None:
        return led
    if home == visit.view:
        return show(replace(visit, answer=Answer(sentence, status, field, typed)))
    # No value of a change of many is as long as that.
    led = answered(visit, home, sentence, status, **values, field=field)
    if led is None:
        raise error
    return led


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
    is_shown = name != "action" or visit.view in _OF_MANY
    return next((each for each in (name, _FIELDS.get(name)) if each in typed and is_shown), "")
