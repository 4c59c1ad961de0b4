"""Which ``DelayQ`` belongs to which app: it hangs on the app itself, as ``app.delayq``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import NoDelayQ

if TYPE_CHECKING:
    from .delayq import DelayQ

_ATTRIBUTE = "delayq"


def attach(app: Any, delayq: DelayQ) -> None:
    """Let *app* have this ``DelayQ``."""
    setattr(app, _ATTRIBUTE, delayq)


def find(app: Any) -> DelayQ | None:
    """The app's ``DelayQ``, if one was made."""
    found: DelayQ | None = getattr(app, _ATTRIBUTE, None)
    return found


def of(app: Any) -> DelayQ:
    """The app's ``DelayQ``.

    Raises:
        NoDelayQ: none was made.
    """
    found = find(app)
    if found is None:
        raise NoDelayQ(app.main)
    return found
