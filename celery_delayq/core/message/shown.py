"""Formats arguments as Celery's logs show them."""

from __future__ import annotations

import re
from typing import Any

import celery.app.amqp
import celery.app.defaults
from celery import Celery

_CUT = "..."
_TELLING = 20  # characters in common that show that two texts are not alike by chance
_ALIKE = str.maketrans("[]", "()")


def depth_of(app: Celery) -> dict[str, int]:
    """Return saferepr's option for the depth of nesting.

    Celery 5.7 has a setting for it; earlier versions always use saferepr's default.
    """
    depth = "task_repr_maxlevels"
    return {"maxlevels": app.conf[depth]} if depth in celery.app.defaults.DEFAULTS else {}


def shown(app: Celery, args: Any, kwargs: Any) -> tuple[str, str]:
    """Return a message's ``argsrepr`` and ``kwargsrepr``, as Celery writes them."""
    say, deep, amqp = celery.app.amqp.saferepr, depth_of(app), app.amqp
    return (
        say(args, maxlen=amqp.argsrepr_maxsize, **deep),
        say(kwargs, maxlen=amqp.kwargsrepr_maxsize, **deep),
    )


def is_celery_s(text: Any, made: str) -> bool:
    """Whether Celery made a text from the arguments, rather than the caller.

    *made* is Celery's text for the decoded arguments, in which a tuple may have become a list.
    """
    if not isinstance(text, str):
        return False
    ours, theirs = (re.sub(r",(?=\))", "", shape.translate(_ALIKE)) for shape in (made, text))
    if ours == theirs:
        return True
    # Both were truncated, maybe not at the same place.
    if _CUT not in ours or _CUT not in theirs:
        return False
    ours, theirs = ours.partition(_CUT)[0], theirs.partition(_CUT)[0]
    size = min(len(ours), len(theirs))
    return size >= _TELLING and ours[:size] == theirs[:size]
