"""Arguments as Celery's logs show them."""

from __future__ import annotations

import re
from typing import Any

import celery.app.amqp
import celery.app.defaults
from celery import Celery

_CUT = "..."
_TELLING = 20  # characters that two texts have in common, not by chance
_ALIKE = str.maketrans("[]", "()")


def depth_of(app: Celery) -> dict[str, int]:
    """How deep they are described, as saferepr takes it.

    Celery 5.7 has a setting for it; before, it was saferepr's default whatever one set.
    """
    depth = "task_repr_maxlevels"
    return {"maxlevels": app.conf[depth]} if depth in celery.app.defaults.DEFAULTS else {}


def shown(app: Celery, args: Any, kwargs: Any) -> tuple[str, str]:
    """What Celery writes into a message's ``argsrepr`` and ``kwargsrepr``."""
    say, deep, amqp = celery.app.amqp.saferepr, depth_of(app), app.amqp
    return (
        say(args, maxlen=amqp.argsrepr_maxsize, **deep),
        say(kwargs, maxlen=amqp.kwargsrepr_maxsize, **deep),
    )


def is_celery_s(text: Any, made: str) -> bool:
    """Whether a text is the one that Celery made of values, and none of the caller's own.

    *made* is what it makes of them as they were read: then a tuple may be a list.
    """
    if not isinstance(text, str):
        return False
    ours, theirs = (re.sub(r",(?=\))", "", one.translate(_ALIKE)) for one in (made, text))
    if ours == theirs:
        return True
    # Both were cut, maybe not at the same place.
    if _CUT not in ours or _CUT not in theirs:
        return False
    ours, theirs = ours.partition(_CUT)[0], theirs.partition(_CUT)[0]
    size = min(len(ours), len(theirs))
    return size >= _TELLING and ours[:size] == theirs[:size]
