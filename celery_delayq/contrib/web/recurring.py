"""Recurring rules: the list of them, and the buttons of each.

GET /rules ---> a page of rules <--303-- skip, run, pause, resume, edit
|  POST /rules?rule=a     ^
+--> remove --303--> GET /rules?only=a&asks=1 --POST, sure--> removed
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from werkzeug.exceptions import BadRequest
from werkzeug.wrappers import Response

from ...core.errors import InvalidOption
from ...core.leaves import leaf
from ...operations.cli.common import with_zone
from . import looking
from .asked import zone_of
from .others import led
from .visit import Visit

RUNS = "every:"  # begins the tag of a rule's runs; the name follows

_NO_CRONSIM = "Recurring tasks need one more package: pip install 'celery_delayq[rules]'"
_PLACE = re.compile(r"(\d{1,2}):(\d{1,18})")
_OF_LIST = ("name", "tag", "after", "place")


class Button(NamedTuple):
    """A button of each rule.

    Attributes:
        name: The name of its action, and of the method of a rule.
        label: The words on it.
        done: The sentence about a rule that it changed; ``{run}`` is the id of a run, and ``{due}``
            when it is due.
        not_done: The sentence about one that it did not.
    """

    name: str
    label: str
    done: str
    not_done: str = "there is no rule {rule} any more"


_ALL = (
    Button(
        "skip", "Skip next", "rule {rule}: the run of {due} is skipped",
        "rule {rule} has no run to skip",
    ),
    Button(
        "unskip", "Unskip", "rule {rule}: the skipped runs come again",
        "rule {rule} has no skipped run",
    ),
    Button("run", "Run now", "rule {rule} runs now, as task {run}"),
    Button("pause", "Pause", "rule {rule} is paused", "rule {rule} is paused already"),
    Button("resume", "Resume", "rule {rule} is resumed", "rule {rule} was not paused"),
    Button(
        "back_to_code", "Back to code", "rule {rule} has the schedule again that code says",
        "rule {rule} has the schedule that code says",
    ),
    Button("remove", "Remove", "rule {rule} is removed"),
)  # fmt: skip
# It stands below its fields.
_EDIT = Button(
    "edit",
    "Change schedule",
    "rule {rule} has another schedule",
    "rule {rule} has this schedule already",
)
_BUTTONS = {button.name: button for button in (*_ALL, _EDIT)}


def rules(visit: Visit) -> Response:
    """List the rules; with POST, change one first.

    The URL has the filters ``name`` and ``tag``, and where the page begins, or the ``only`` rule;
    for POST the ``rule`` with the ``revision`` that was shown. The form has the ``action``.
    """
    is_change = visit.request.method == "POST" and not visit.answer.sentence
    try:
        return _changed(visit) if is_change else _page(visit)
    except ModuleNotFoundError as error:
        if error.name != "cronsim":
            raise
        return visit.page("rules.html", 409 if is_change else None, missing=_NO_CRONSIM)


def _page(visit: Visit) -> Response:
    args = visit.request.args
    only, text, tag = (args.get(name, "") for name in ("only", "name", "tag"))
    found = leaf("rules").listed(
        visit.delayq.services,
        only=only,
        text=text,
        tag=tag,
        after=args.get("after", ""),
        place=_place(args.get("place", "")),
        seconds=looking.SECOND,
    )
    return visit.page(
        "rules.html",
        missing="",
        only=only,
        rows=[_row(visit, rule) for rule in found.rules],
        has_source=any(rule.source for rule in found.rules),
        unreadable=found.unreadable,
        in_order=found.in_order,
        further=found.further and visit.url("rules", name=text, tag=tag, **found.further),
        back=visit.url("rules", **_of_list(visit)),
    )


def _place(text: str) -> tuple[int, int] | None:
    found = _PLACE.fullmatch(text)
    if text and not found:
        raise InvalidOption("place", text, "the place at which a page of rules begins")
    return (int(found[1]), int(found[2])) if found else None


def _of_list(visit: Visit) -> dict[str, str]:
    """Return the filters in the URL, and where the page begins."""
    return {name: visit.request.args.get(name, "") for name in _OF_LIST}


def _row(visit: Visit, rule: Any) -> dict[str, Any]:
    unfit = {"resume"} if not rule.is_paused else {"pause", "skip"}
    if not rule.skipped:
        unfit.add("unskip")
    if rule.edited is None:
        unfit.add("back_to_code")
    only = visit.request.args.get("only")
    return {
        "rule": rule,
        "runs": visit.url("tasks", tag=RUNS + rule.name),
        "last": rule.last_run(),
        "state": _state(rule),
        "buttons": [button for button in _ALL if button.name not in unfit],
        "edit": visit.url("rules", only=rule.name, **_of_list(visit)),
        "act": visit.url(
            "rules", rule=rule.name, revision=rule.revision, only=only, **_of_list(visit)
        ),
    }


def _edited(visit: Visit, rule: Any) -> bool:
    form = visit.request.form
    is_done: bool = rule.edit(
        form.get("schedule", ""), tz=form.get("tz") or None, dialect=form.get("dialect", "")
    )
    return is_done


def _state(rule: Any) -> str:
    states = ("paused", rule.is_paused), ("trouble", rule.trouble), ("overdue", rule.overdue)
    return next((name for name, has in states if has), "at work")


def _changed(visit: Visit) -> Response:
    """Change a rule, and lead to the list; or to the question whether to remove it."""
    args, form = visit.request.args, visit.request.form
    name, where = args.get("rule", ""), _of_list(visit)
    button = _BUTTONS.get(form.get("action", ""))
    if button is None:
        raise BadRequest(f"action is {form.get('action')!r}; expected one of {', '.join(_BUTTONS)}")
    if button.name == "remove" and "sure" not in form:
        return visit.redirect("rules", only=name, asks="1", **where)
    said, is_done, run = _press(visit, button, name)
    if button.name != "remove":
        where["only"] = args.get("only", "")
    return led(visit, rules, said, is_done, run=run, **where)


def _press(visit: Visit, button: Button, name: str) -> tuple[str, bool, str]:
    """Change a rule; return the answer in words, whether it was done, and the id of a run."""
    rule = visit.delayq.rule(name)
    if rule is None:
        return f"there is no rule {name} any more", False, ""
    if str(rule.revision) != visit.request.args.get("revision"):
        changed = f"rule {name} was changed since you loaded the page; nothing was done"
        return changed, False, ""
    try:
        answer = _edited(visit, rule) if button is _EDIT else getattr(rule, button.name)()
    except TypeError as error:
        fitting = InvalidOption("arguments", str(error), "arguments that fit the task")
        raise BadRequest(f"rule {name}: {fitting}") from error
    visit.tell(button.name, {"rule": name}, bool(answer))
    run = "" if isinstance(answer, bool) else str(getattr(answer, "id", answer) or "")
    sentence = button.done if answer else button.not_done
    due = getattr(answer, "due", None)
    at = due and with_zone(due, zone_of(visit))
    return sentence.format(rule=name, run=run, due=at), bool(answer), run
