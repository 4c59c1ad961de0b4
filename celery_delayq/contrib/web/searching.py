"""The search: what is typed becomes filters in the URL, or leads to the page of an id or a key.

    tag:vip "red shoes" due:tomorrow --filters_in--> ?tag=vip&text=red shoes&due=tomorrow
    an id, a key                     --where_of----> its page
    nothing found                    --tries-------> filters that find something, with counts

A time stands in the URL as it was typed, so a bookmark of tomorrow is tomorrow on each day.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

from werkzeug.wrappers import Request

from ...core.store import State
from ...core.tasks.reading import STATES
from ...core.tasks.scheduled_task import ScheduledTask
from ...core.text import counted
from ...core.threads import gather
from ...operations import finding
from ...operations.cli.common import name_of
from ...operations.typed_times import told
from . import past, words
from .looking import SHOWN, listed
from .visit import Mistyped, Visit
from .words import TIMES

#: What may stand before a colon, with its name in the URL; in the order of the chips.
KINDS = {
    **{name: name for name in ("id", "key", "task", "queue", "tag", "state", *TIMES)},
    "word": "text",
}
#: Filters of which the URL can have more than one.
_MANY_TIMES = ("task", "queue", "tag", "state", "text")
_ALONE = ("id", "key")
_QUICK = {
    "Today": {"due": "today"},
    "Tomorrow": {"due": "tomorrow"},
    "This week": {"due": "this week"},
    "Overdue": {"due": "..now", "state": State.SCHEDULED.value},
    "In flight": {"state": State.IN_FLIGHT.value},
    "Dead": {"state": State.DEAD.value},
}
_TOKEN = re.compile(rf'(?:({"|".join(KINDS)}):\s*)?(?:"([^"]*)"|(\S+))', re.IGNORECASE)
_UNKNOWN = re.compile(r"([A-Za-z]+):(.+)")
_ID = re.compile(r"[0-9a-f]{8}(-?[0-9a-f-]{0,27})?")
_LONGEST_TIME = 4  # words behind the first one: Sun 29 Nov 2026 9:00
_ALIKE = 0.75  # difflib's ratio: one slip in a word of five letters
_MOST_TRIES = 8
_EXAMPLES = {"state": "state:dead", **dict.fromkeys(TIMES, "due:tomorrow")}


class Token(NamedTuple):
    """A part of what was typed: its kind, empty without one; its text; and whether in quotes."""

    kind: str
    text: str
    is_quoted: bool


def tokens_in(typed: str) -> list[Token]:
    """Return the parts of what was typed; a time takes the words behind it that belong to it.

    Raises:
        Mistyped: quotes are not closed, a kind is unknown or has no text, or a text is none of its
            kind.
    """
    found = [_token(one) for one in _TOKEN.finditer(typed)]
    made = list[Token]()
    while found:
        token, *found = found
        if token.kind in TIMES:
            token, found = _time(token, found)
        elif token.kind == "state":
            token = token._replace(text=_state(token.text))
        made.append(token)
    return made


def _token(found: re.Match[str]) -> Token:
    kind, quoted, bare = found.groups()
    text = quoted if bare is None else bare
    if bare is not None and bare.startswith('"'):
        raise Mistyped("q", f"the quotes before {bare[1:]} are not closed")
    if not kind and quoted is None and bare:
        name, _, rest = bare.partition(":")
        if not rest and name.lower() in KINDS and ":" in bare:
            example = _EXAMPLES.get(name.lower(), f'{name}:mail or {name}:"two words"')
            raise Mistyped("q", f"{bare} has no text; type one behind it, as in {example}")
        if (typed := _UNKNOWN.fullmatch(bare)) and typed[1].lower() not in KINDS:
            meant = get_close_matches(typed[1].lower(), KINDS, 1, _ALIKE)
            if meant:
                sentence = f"the search has no {typed[1]}:; did you mean {meant[0]}:{typed[2]}?"
                raise Mistyped("q", f'{sentence} For the text itself, type "{bare}"')
    return Token((kind or "").lower(), text or "", quoted is not None)


def _time(token: Token, behind: list[Token]) -> tuple[Token, list[Token]]:
    """Return a token of a time with all its words, and the tokens behind it."""
    more = 0
    while not token.is_quoted and more < min(_LONGEST_TIME, len(behind)):
        if behind[more].kind or behind[more].is_quoted:
            break
        more += 1
    for count in range(more, -1, -1):
        text = " ".join([token.text, *(one.text for one in behind[:count])])
        try:
            words.time_in_filter(token.kind, text, "q")
        except Mistyped:
            if not count:
                raise
        else:
            return token._replace(text=text), behind[count:]
    raise AssertionError


def _state(text: str) -> str:
    name = text.upper().replace(" ", "_").replace("-", "_")
    if name in STATES:
        return name
    meant = get_close_matches(name, STATES, 1, _ALIKE)
    *most, last = (each.lower() for each in STATES)
    hint = f"did you mean {meant[0].lower()}?" if meant else f"expected {', '.join(most)} or {last}"
    raise Mistyped("q", f"{text!r} is no state; {hint}")


def filters_in(visit: Visit, tokens: list[Token]) -> dict[str, Any]:
    """Return the values in the URL of the list, with what was typed.

    An id or a key names one task, so it stands alone.

    Raises:
        Mistyped: it does not.
    """
    named = [_filter_of(token) for token in tokens]
    alone = [(name, text) for name, text in named if name in _ALONE]
    if alone and len(named) > 1:
        name, text = alone[0]
        sentence = f"{name}:{text} names one task, so nothing else can stand beside it"
        raise Mistyped("q", sentence)
    kept = with_values(visit, named)
    chosen = {name for name, _ in alone}
    return {
        name: text
        for name, text in kept.items()
        if (name in (*chosen, "zone") if chosen else name not in _ALONE)
    }


def _filter_of(token: Token) -> tuple[str, str]:
    if token.kind:
        return KINDS[token.kind], token.text
    is_id = not token.is_quoted and _ID.fullmatch(token.text)
    return ("id" if is_id else "text"), token.text


def with_values(visit: Visit, changed: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the values in the URL of the list, with others; not the place in the list."""
    args = visit.request.args.to_dict(flat=False)
    kept = {name: args[name] for name in (*KINDS.values(), "order", "zone") if name in args}
    for name, text in changed:
        before = [one for one in kept.get(name, ()) if one != text]
        kept[name] = [*before, text] if name in _MANY_TIMES else [text] * bool(text)
    return kept


def where_of(visit: Visit, tokens: list[Token]) -> str | None:
    """Return the URL of the page of an id or a key; ``None`` if nothing is known of it."""
    if len(tokens) != 1 or tokens[0].kind not in ("", *_ALONE):
        return None
    return past.where_of(visit, tokens[0].text, tokens[0].kind)


class Chip(NamedTuple):
    """A filter in the URL, with the URL of the list without it."""

    param: str
    name: str
    text: str
    without: str


def chips(visit: Visit) -> list[Chip]:
    """Return the filters in the URL."""
    args, kept = visit.request.args, with_values(visit, [])
    return [
        Chip(param, name, text, visit.url("tasks", **_without(kept, param, text)))
        for name, param in KINDS.items()
        for text in filter(None, args.getlist(param))
    ]


def _without(kept: dict[str, Any], param: str, text: str) -> dict[str, Any]:
    return {**kept, param: [one for one in kept[param] if one != text]}


def quick(visit: Visit) -> list[tuple[str, str, bool]]:
    """Return the searches that one press makes: their names, URLs, and which one is shown."""
    shown, zone = {chip.param: chip.text for chip in chips(visit)}, visit.request.args.get("zone")
    return [
        (
            name,
            visit.url("tasks", **values, zone=zone if "due" in values else None),
            shown == values,
        )
        for name, values in _QUICK.items()
    ]


def suggested(names: tuple[list[str], list[str]], tasks: list[ScheduledTask]) -> list[str]:
    """Return what the field suggests."""
    tags = sorted({tag for task in tasks for tag in task.tags})
    of_kind = (("task", names[0]), ("queue", names[1]), ("tag", tags))
    days = ("today", "tomorrow", "this week")
    return [
        *(f"due:{_quoted(day)}" for day in days),
        *(f"state:{name.lower()}" for name in STATES),
        *(f"{kind}:{_quoted(name)}" for kind, some in of_kind for name in some),
    ]


def _quoted(text: str) -> str:
    return f'"{text}"' if " " in text else text


def span_in_words(visit: Visit) -> str:
    """Return the instants that the time of the filter means; empty without one."""
    if not visit.request.args.get("due"):
        return ""
    picking, zone = words.picked(visit), words.zone_of(visit)
    ends = [
        f"{word} {told(picking[name], zone, '').strip()}"
        for word, name in (("from", "after_due"), ("until", "before_due"))
        if name in picking
    ]
    return f"Due {' '.join(ends)}, {name_of(zone)}"


class Try(NamedTuple):
    """Another search, which finds something.

    Attributes:
        name: Its words.
        instead: What it is in place of; empty for a search without a filter.
        url: Its URL.
        finds: How many tasks, in words.
    """

    name: str
    instead: str
    url: str
    finds: str


def tries(visit: Visit) -> list[Try]:
    """Return what may find something if nothing was found: names that are alike, fewer filters."""
    made = list(_tries(visit))[:_MOST_TRIES]
    if not made:
        return []
    found = gather(*(partial(_finds, visit, values) for values, _, _ in made))
    return [
        Try(name, instead, visit.url("tasks", **values), finds)
        for (values, name, instead), finds in zip(made, found, strict=True)
        if finds
    ]


def _tries(visit: Visit) -> Iterator[tuple[dict[str, Any], str, str]]:
    kept, shown = with_values(visit, []), chips(visit)
    for chip in shown:
        if chip.name in ("task", "queue", "tag"):
            for name in finding.suggested(visit.delayq, chip.name, chip.text):
                values = [name if one == chip.text else one for one in kept[chip.param]]
                instead = f"{chip.name}:{chip.text}"
                yield {**kept, chip.param: values}, f"{chip.name}:{name}", instead
    if len(shown) > 1:
        for chip in shown:
            name = f"without {chip.name}:{chip.text}"
            yield _without(kept, chip.param, chip.text), name, ""


def _finds(visit: Visit, values: dict[str, Any]) -> str:
    """Return how many tasks a search finds, as far as a page of the list says; empty if none."""
    query = urlencode([(name, text) for name, some in values.items() for text in some])
    request = Request({**visit.request.environ, "QUERY_STRING": query})
    found = listed(replace(visit, request=request))
    if not found.tasks:
        return ""
    return f"{SHOWN} tasks or more" if found.further else counted(len(found.tasks))
