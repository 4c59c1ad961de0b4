"""Whether everything was as it should be: one sentence for each thing that was not."""

import re
from collections import Counter

from story import LATEST, ms


def runs_in(log):
    """How often each task ran, by the worker's own account."""
    ended = re.compile(r"Task reminders\.remind\[([^\]]+)\] (?:succeeded|raised)")
    return Counter(ended.findall(log.read_text(errors="replace")))


def problems(show, runs):
    for visit in show.visits:
        for problem in [*visit.wrong, *_of_answer(visit), *_of_run(visit, runs[visit.task_id])]:
            yield f"{visit.user}'s reminder {problem}"


def _of_answer(visit):
    change = visit.change
    if change is not None and visit.answer is not change.answer:
        answer = visit.answer and visit.answer.name
        yield f"answered {answer} to {change.call}, expected {change.answer.name}"


def _of_run(visit, runs):
    yield from (_of_cancelled if visit.cancelled else _of_kept)(visit, runs)


def _of_cancelled(visit, runs):
    if runs:
        yield "was cancelled, and ran all the same"
    elif visit.state != "cancelled":
        yield f"was cancelled, and its result says {visit.state!r}"


def _of_kept(visit, runs):
    if runs != 1:
        yield f"ran {runs} times, expected once"
    elif visit.told is None:
        yield f"ran, and its result says {visit.state!r}"
    elif visit.told["to"] != visit.user:
        yield f"went to {visit.told['to']}"
    elif visit.told["due"] != visit.due:
        yield f"ran for the due time {visit.told['due']}, and was promised for {visit.due}"
    elif visit.ran < visit.due:
        yield f"ran {ms(-visit.late)} early"
    elif visit.late > LATEST:
        yield f"ran {ms(visit.late)} late; {ms(LATEST)} is the bound"


def summary(show):
    """One sentence on a show without problems."""
    ran = [visit for visit in show.visits if visit.told]
    latest = max(visit.late for visit in ran)
    rescheduled = [visit.user for visit in ran if len(visit.dues) > 1]
    cancelled = [visit.user for visit in show.visits if visit.cancelled]
    return (
        f"All as it should be: {len(ran)} reminders ran, each once, none early,\n"
        f"the latest {ms(latest)} late; {_and(rescheduled)} at their new times;\n"
        f"{_and(cancelled)} was cancelled and never ran."
    )


def _and(names):
    return " and ".join(f"{name}'s" for name in names)
