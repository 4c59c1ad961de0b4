"""The methods that rules add to ``DelayQ``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...core.services import Services

if TYPE_CHECKING:
    from celery.app.task import Task
    from celery.canvas import Signature

    from .face import Rule


class RuleMethods:
    """The methods for recurring tasks."""

    services: Services

    def every(
        self,
        name: str,
        signature: Signature[Any] | Task[..., Any],
        schedule: Any,
        *,
        tz: str | None = None,
        dialect: str = "",
        missed: str = "one",
        jitter: float = 0,
        tags: Sequence[str] = (),
        version: int = 0,
        replace: bool = False,
        declared: bool = True,
    ) -> Rule:
        """Let a task recur: its next runs wait in the store, as ordinary tasks.

        This call writes only the rule. A worker, or the command ``scan``, writes the runs, and
        calls ``apply_async`` for that: what it raises is the rule's ``trouble``.

        Saying the same again changes nothing, so each process may say it when it starts. Another
        rule under the name takes the place of the one before: what that has written ahead is
        cancelled, but for runs that somebody moved or edited.

        Args:
            name: The rule's name, of 1 to 200 bytes; its runs have the tag ``every:NAME``.
            signature: The task, with its arguments and options. With ``delayq_key`` one run at a
                time waits, or holds the key; a slot that meets the holder is left out.
            schedule: A timedelta, seconds, Celery's ``crontab`` or ``schedule``, or a text of five
                fields. An interval counts since 1970.
            tz: The zone of the fields; by default the app's.
            dialect: What a text means that restricts the day of the month and the weekday:
                ``"cron"``, either; ``"celery"``, both.
            missed: What becomes of slots at which no scanner was alive: ``"one"``, the latest is
                run; ``"none"``; or ``"all"``, up to 100.
            jitter: By up to how many seconds each run is later than its slot: always by the same,
                which the name decides.
            tags: Tags of its runs.
            version: Processes of two versions may be alive at once, as in a rolling deploy. One
                that says a lower version than the store has changes nothing. Of the same version,
                the last one that says it wins.
            replace: Change a rule that this process has set before. Without it, that is refused,
                as two rules may have got one name by mistake.
            declared: Whether the rule goes with the code that says it, if a worker says it before
                it is ready. ``False``: it stays until somebody removes it, as do rules that are
                said later, or elsewhere.

        Returns:
            The rule.

        Raises:
            InvalidOption: an argument is none, or the schedule never fires.
            TypeError: the task does not take the signature's arguments.
            kombu.exceptions.OperationalError: Redis cannot be reached.
        """
        from .every import every

        return every(
            self.services,
            name,
            signature,
            schedule,
            tz=tz,
            dialect=dialect,
            missed=missed,
            jitter=jitter,
            tags=tags,
            version=version,
            replace=replace,
            declared=declared,
        )

    def rule(self, name: str) -> Rule | None:
        """The rule of this name, or ``None``."""
        from .face import rule

        return rule(self.services, name)

    def rules(self, *, tag: str | None = None) -> list[Rule]:
        """All rules that this version can read, by name; with *tag*, those whose runs have it."""
        from .face import rules

        return rules(self.services, tag=tag)
