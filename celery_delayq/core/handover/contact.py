"""Contact with the store or the broker: pauses and log lines while it is lost."""

from __future__ import annotations

import logging

from .. import clock
from ..text import logger_of
from .backoff import Backoff

logger = logger_of(__name__)


class Contact:
    """The outages of one server, one after the other; used by one thread.

    Args:
        what: The server, and its URL without secrets: ``store redis://red:6379/0``.
        setting: The setting with that URL.
        backoff: Pauses between attempts to reach it.
    """

    def __init__(self, what: str, setting: str, backoff: Backoff | None = None) -> None:
        self.backoff = backoff or Backoff()
        self._what = what
        self._setting = setting
        self._lost_at: float | None = None
        self._is_said = False
        self._was_there = False

    @property
    def is_lost(self) -> bool:
        return self._lost_at is not None

    def lost(self, why: str) -> float:
        """Note that an attempt failed; return how many seconds to wait before the next one."""
        now = clock.monotonic()
        is_news, pause = self.backoff.is_news(now, "lost"), self.backoff.next()
        if self._lost_at is None:
            self._lost_at, self._is_said = now, False
        news = f"the {self._what} of {self._setting}"
        if self._is_said:
            news += f" is still down after {now - self._lost_at:.0f} s"
        else:
            news = f"{'lost' if self._was_there else 'cannot reach'} {news}"
        level = logging.WARNING if is_news else logging.DEBUG
        logger.log(level, "%s (%s); retrying in %.1f s", news, _reason(why), pause)
        self._is_said = self._is_said or is_news
        return pause

    def back(self, overdue: int | None = None) -> None:
        """Note that the server works; if the log has its loss, log how long it was down.

        Args:
            overdue: How many tasks were overdue before it was back, if known.
        """
        self._was_there = True
        if self._lost_at is None:
            return
        seconds, self._lost_at = clock.monotonic() - self._lost_at, None
        waited = "" if overdue is None else f"; {overdue} overdue"
        level = logging.INFO if self._is_said else logging.DEBUG
        logger.log(level, "%s is back after %.0f s%s", self._what, seconds, waited)


def _reason(why: str) -> str:
    """Return an error's text as a part of a sentence."""
    text = why.rstrip(". ")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
