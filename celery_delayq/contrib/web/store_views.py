"""The views of the store as a whole: pauses, held keys, tasks by queue, rules.

    paused, key --POST, 303--> the same page, with the answer
    queues ------a second----> GET /queues?...&place --a second--> ...

    GET /rules ---> a page of rules <--303-- skip, run, pause, resume, edit
       |  POST /rules?rule=a     ^
       +--> remove --303--> GET /rules?only=a&asks=1 --POST, sure--> removed

To pause or resume everything leads to a question first, as to remove a rule does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timezone
from functools import partial
from typing import Any, NamedTuple

from werkzeug.exceptions import BadRequest
from werkzeug.wrappers import Response

from ...core import clock
from ...core.clock import from_ms
from ...core.errors import InvalidOption
from ...core.leaves import leaf
from ...core.store import KeyHolder, What, lane_in_words
from ...core.store.counts import WalkPosition
from ...core.threads import gather
from ...operations import finding
from ...operations.cli.common import soon, with_zone
from ...operations.cli.operate import NOBODY, REFUSED, sentence_of
from ...operations.pauses import held_keys
from ...operations.queues import counts_from
from .looking import SECOND, SHOWN
from .visit import Mistyped, Visit, answered, check_signed, signed_url
from .words import zone_of

RUNS = "every:"  # begins the tag of a rule's runs; the name follows

_KINDS = ("queue", "task", "everything")
_WALK_PLACE = re.compile(r"(\d{1,2}):(-1|\d{1,17}(?:\.\d{1,9})?):(-1|\d{1,15})")
_RULE_PLACE = re.compile(r"(\d{1,2}):(\d{1,18})")
_OF_RULES = ("name", "tag", "after", "place")  # filters in the URL, and where the page begins
_NO_CRONSIM = "Recurring tasks need one more package: pip install 'celery_delayq[rules]'"


def paused(visit: Visit) -> Response:
    """List the pauses; with POST, pause or resume first.

    The form or the URL has the ``kind`` (queue, task or everything) and the ``name`` of what is
    paused; the form has the ``action``, with ``late`` for a pause and ``rate`` for a resume. For
    everything, the form has ``sure``; without it, this leads to the question, whose URL has what
    the form had.
    """
    form, args = visit.request.form, visit.request.args
    if visit.request.method == "POST" and not visit.answer.sentence:
        lane, action, options = _lane(visit), *_action(visit)
        if "all" in lane and "sure" not in form:
            asked = {name: form.get(name) for name in ("late", "rate")}
            return visit.redirect("paused", kind="everything", asks=action, **asked)
        said, is_done = _pause_or_resume(visit, lane, action, options)
        its = {name: visit.request.values.get(name, "") for name in ("kind", "name")}
        then = _since(visit.delayq.pauses(), its)
        return _told(visit, paused, said, is_done, **its, then=then)
    pauses = visit.delayq.pauses()
    visit = visit.unless_changed(_since(pauses, args))
    counts = visit.counts
    if visit.answer.field == "rate" and not any(_is_named(each, args) for each in pauses):
        visit = replace(visit, answer=visit.answer._replace(field=""))
    return visit.page(
        "paused.html",
        pauses=pauses,
        names=finding.names_of(visit.delayq),
        now=from_ms(counts.now_ms),
        asks=args.get("asks", "") if args.get("kind") == "everything" else "",
        tasks=counts.scheduled + counts.paused,
    )


def _since(pauses: list[Any], args: Mapping[str, str]) -> str:
    """Return since when a lane is paused, as the URL of an answer has it."""
    found = (each for each in pauses if _is_named(each, args) and not each.resumed)
    return next((f"paused {each.since.isoformat()}" for each in found), "not paused")


def _is_named(pause: Any, args: Mapping[str, str]) -> bool:
    name = pause.queue or pause.task or ""
    return (args.get("kind"), args.get("name", "")) == (_kind_of(pause), name)


def _kind_of(pause: Any) -> str:
    if pause.queue is not None:
        return "queue"
    return "everything" if pause.task is None else "task"


def _told(
    visit: Visit, view: Callable[[Visit], Response], said: str, is_done: bool, **values: str
) -> Response:
    return answered(visit, visit.view, view, said, 200 if is_done else 409, **values)


def _action(visit: Visit) -> tuple[str, dict[str, Any]]:
    """Return the action of the form, with its options."""
    form = visit.request.form
    action = form.get("action")
    if action == "pause":
        return action, {"late": "late" in form}
    if action == "resume":
        return action, {"rate": _rate(form.get("rate", ""))}
    raise BadRequest(f"action is {action!r}; expected pause or resume")


def _pause_or_resume(
    visit: Visit, lane: dict[str, Any], action: str, options: dict[str, Any]
) -> tuple[str, bool]:
    words = lane_in_words(lane.get("queue"), lane.get("task"))
    named = {kind: name for kind, name in lane.items() if kind != "all"}
    if action == "pause":
        visit.delayq.pause(**lane, **options)
        visit.tell("pause", named, True)
        return f"{words} is paused{_unknown(visit, named)}", True
    was_paused = visit.delayq.resume(**lane, **options)
    visit.tell("resume", named, was_paused)
    return (f"{words} is resumed", True) if was_paused else (f"{words} was not paused", False)


def _unknown(visit: Visit, lane: dict[str, str]) -> str:
    """Return a note about a name that may be misspelt; empty if the app, or a task, has it."""
    for kind, name in lane.items():
        known = finding.known_names(visit.delayq, kind)
        if name not in known:
            meant = " or ".join(finding.similar(name, known))
            hint = f"; did you mean {meant}?" if meant else ""
            return f", but this app has no {kind} {name!r}{hint}"
    return ""


def _lane(visit: Visit) -> dict[str, Any]:
    """Return the arguments of ``DelayQ.pause`` that name what the form, or its URL, means."""
    values = visit.request.values
    kind, name = values.get("kind"), values.get("name", "")
    if kind not in _KINDS:
        raise BadRequest(f"kind is {kind!r}; expected one of {', '.join(_KINDS)}")
    if kind == "everything":
        if name:
            raise Mistyped(
                "name", "everything has no name; leave it empty, or choose a queue or a task"
            )
        return {"all": True}
    return {kind: name}


def _rate(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise InvalidOption("rate", text, "a number of tasks a second") from None


def key(visit: Visit) -> Response:
    """Show what holds a unique key; with POST, free it first.

    The URL has the ``key``, and for POST the delivery that was ``seen`` to hold it.
    """
    name = visit.request.args.get("key", "")
    if visit.request.method == "POST" and not visit.answer.sentence:
        said, is_done = _freed(visit, name)
        then = _hold(visit.delayq.holder(key=name))
        return _told(visit, key, said, is_done, key=name, then=then)
    held = visit.delayq.holder(key=name)
    visit, now = visit.unless_changed(_hold(held)), visit.now
    return visit.page(
        "key.html",
        key=name,
        held=held,
        sentence=sentence_of(held, now, timezone.utc) if held else NOBODY.format(name),
    )


def _hold(held: KeyHolder | None) -> str:
    """Return who holds a key, as the URL of an answer has it."""
    return f"{held.state} {held.id} {held.delivery}" if held else "free"


def _freed(visit: Visit, name: str) -> tuple[str, bool]:
    if visit.request.form.get("action") != "free":
        raise BadRequest("expected the action free")
    seen = KeyHolder(name, "", "left", delivery=visit.request.args.get("seen", ""))
    outcome = visit.delayq.free(key=name, if_holder=seen)
    visit.tell("free", {"key": name}, outcome)
    return (f"key {name} is free", True) if outcome else (REFUSED[outcome].format(name), False)


def held(visit: Visit) -> Response:
    """List the keys that are held after a delivery, or that another task waits for.

    The URL has as ``q`` how they begin, and as ``place`` where the page begins.
    """
    args, services = visit.request.args, visit.delayq.services
    begins = args.get("q", "")
    found, tasks = gather(
        partial(
            held_keys, services, begins, most=SHOWN, seconds=SECOND, place=args.get("place", "")
        ),
        partial(_delivered, visit),
    )
    further = visit.url("keys", q=begins, place=found.place) if found.place else ""
    return visit.page(
        "keys.html",
        q=begins,
        held=sorted(found.found, key=lambda each: each.until or visit.now),
        tasks=tasks,
        further=further,
        is_cut=bool(further) and len(found.found) < SHOWN,
        now=visit.now,
        soon=soon,
        url=lambda key: visit.url("key", key=key),
    )


def _delivered(visit: Visit) -> dict[str, str]:
    """Return the names of the tasks that were delivered, by their ids, from the history."""
    if not visit.delayq.services.settings.history:
        return {}
    return {each.id: each.task for each in visit.delayq.history(what=What.HANDED_OVER)}


def queues(visit: Visit) -> Response:
    """Count all waiting tasks by queue; a step ends after a second.

    The URL has the ``place`` of the next step, and as ``found`` each queue's count and name.
    """
    if visit.request.args:
        check_signed(visit)
    found = Counter(dict(_found(text) for text in visit.request.args.getlist("found")))
    until = clock.monotonic() + SECOND
    place: WalkPosition | None = None
    for place, counts in counts_from(visit.delayq.services, _walk_place(visit)):  # noqa: B007
        for count in counts:
            found[count.queue] += count.waiting
        if clock.monotonic() >= until:
            break
    parts = [f"{count} {name}" for name, count in found.items()]
    at = place and ":".join(map(str, place))
    further = signed_url(visit, "queues", found=parts, place=at) if at else ""
    return visit.page("queues.html", found=sorted(found.items()), further=further)


def _found(text: str) -> tuple[str, int]:
    count, space, name = text.partition(" ")
    if not count.isascii() or not count.isdigit() or not space:
        raise InvalidOption("found", text, "a count and a queue")
    return name, int(count)


def _walk_place(visit: Visit) -> WalkPosition:
    text = visit.request.args.get("place", "0:-1:-1")
    found = _WALK_PLACE.fullmatch(text)
    if not found or int(found[1]) >= len(visit.delayq.services.scripts):
        raise InvalidOption("place", text, "the place at which counting stopped")
    return WalkPosition(int(found[1]), found[2], int(found[3]))


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
_EDIT = Button(  # it stands below its fields
    "edit", "Change schedule", "rule {rule} has another schedule",
    "rule {rule} has this schedule already",
)  # fmt: skip
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
    if visit.answer.then is not None:
        visit = visit.unless_changed(_revision_of(visit, args.get("rule", "")))
    only, text, tag = (args.get(name, "") for name in ("only", "name", "tag"))
    found = leaf("rules").listed(
        visit.delayq.services,
        only=only,
        text=text,
        tag=tag,
        after=args.get("after", ""),
        place=_rule_place(args.get("place", "")),
        seconds=SECOND,
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
        back=visit.url("rules", **_of_rules(visit)),
    )


def _rule_place(text: str) -> tuple[int, int] | None:
    found = _RULE_PLACE.fullmatch(text)
    if text and not found:
        raise InvalidOption("place", text, "the place at which a page of rules begins")
    return (int(found[1]), int(found[2])) if found else None


def _of_rules(visit: Visit) -> dict[str, str]:
    return {name: visit.request.args.get(name, "") for name in _OF_RULES}


def _row(visit: Visit, rule: Any) -> dict[str, Any]:
    unfit = {"resume"} if not rule.is_paused else {"pause", "skip"}
    if not rule.skipped:
        unfit.add("unskip")
    if rule.edited is None:
        unfit.add("back_to_code")
    only, where = visit.request.args.get("only"), _of_rules(visit)
    return {
        "rule": rule,
        "runs": visit.url("tasks", tag=RUNS + rule.name),
        "last": rule.last_run(),
        "state": _state(rule),
        "buttons": [button for button in _ALL if button.name not in unfit],
        "edit": visit.url("rules", only=rule.name, **where),
        "act": visit.url("rules", rule=rule.name, revision=rule.revision, only=only, **where),
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
    name, where = args.get("rule", ""), _of_rules(visit)
    button = _BUTTONS.get(form.get("action", ""))
    if button is None:
        raise BadRequest(f"action is {form.get('action')!r}; expected one of {', '.join(_BUTTONS)}")
    if button.name == "remove" and "sure" not in form:
        return visit.redirect("rules", only=name, asks="1", **where)
    said, is_done, run = _press(visit, button, name)
    if button.name != "remove":
        where["only"] = args.get("only", "")
    then = _revision_of(visit, name)
    return _told(visit, rules, said, is_done, run=run, rule=name, then=then, **where)


def _revision_of(visit: Visit, name: str) -> str:
    """Return the revision of a rule, as the URL of an answer has it."""
    rule = visit.delayq.rule(name)
    return str(rule.revision) if rule else "gone"


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
