"""Takes care of a store: diagnoses it, checks and repairs it, and moves it.

    doctor, access             whether it can work as it should
    check                      finds and repairs what a crash or another program left
    dump --> lines --> load    moves it to another Redis or release
    migration                  moves it to another number of shards, or to a newer format
    commands                   the commands for all of that

Here are the methods of ``DelayQ`` that do the same. The rest is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...core.services import Services

if TYPE_CHECKING:
    from .check import Finding, Repaired
    from .load import Lines, Loaded


class CareMethods:
    """The methods that check, repair, dump and load a store."""

    services: Services

    def check(self) -> Iterator[Finding]:
        """The inconsistencies of the store, read slice by slice as you iterate.

        It changes nothing, and ignores operations in progress. It can find a template that counts
        too many records only while no task is scheduled.

        Returns:
            Findings with ``kind``, ``id``, ``sentence`` and ``repair``: the action of
            :meth:`repair` in words, or empty. No findings if the store is consistent.
        """
        from .check import check_store

        return check_store(self.services.entries)

    def dump(self) -> Iterator[dict[str, Any]]:
        """All tasks and pauses in the store, read as you iterate.

        It changes nothing. Tasks scheduled meanwhile are not included; tasks that leave meanwhile
        may be. So before you move a store, pause everything and stop scheduling.

        Returns:
            Dictionaries for ``json.dumps``: a header of ``kind`` ``dump``; one for each pause and
            task; and a footer of ``kind`` ``end``, with their number. A dump without its footer is
            incomplete.

        Raises:
            StoreDiffers: the store was emptied during the dump.
            kombu.exceptions.OperationalError: Redis cannot be reached.
        """
        from .dump import dump

        return dump(self.services)

    def repair(self, finding: Finding) -> Repaired:
        """Repair a finding of :meth:`check` if it still holds; change nothing else.

        The repairing step checks the finding again first. To repair a template's count, it reads
        all records.

        Args:
            finding: A finding from this app's store.

        Returns:
            An object whose ``what`` is one of: ``done``; ``back``: the task waits again; ``dead``,
            with the ``reason``; ``lost``: its record was gone, and its place is now removed;
            ``gone``: the problem no longer existed, and nothing was done; ``left``: not repairable,
            only reported. It is false only for ``left``.

        Raises:
            InvalidOption: it is not a finding.
        """
        from .check import repair

        return repair(self.services, finding)

    def load(
        self,
        lines: Lines,
        *,
        skip_existing: bool = False,
        paused: bool = False,
        dry_run: bool = False,
        progress: Callable[[Loaded], object] | None = None,
    ) -> Loaded:
        """Load a :meth:`dump`, with its ids, due times, keys, tags, attempts and dead tasks.

        It first restores the pauses. Messages are routed for this app's broker. A task that is
        already here stays as it is, and a task that has left this store since it was scheduled does
        not come back. So you can repeat the same call: at any time while the store is paused, and
        otherwise as long as ``delayq_remember`` says.

        Args:
            lines: The output of :meth:`dump`, or the same as lines of JSON, or an open file of
                them. Consumed in slices of 100.
            skip_existing: Skip tasks whose id or key belongs to another task waiting here.
            paused: First pause everything.
            dry_run: Only count the readable tasks; do not check whether their ids and keys are
                taken.
            progress: Called after each slice with the ``Loaded`` so far.

        Returns:
            How many tasks were ``loaded``, are ``here`` already, had ``left`` or were ``skipped``;
            why others were ``refused``; and which were ``unreadable`` when they were dumped. It is
            true if none was refused or unreadable.

        Raises:
            InvalidDump: it is not a dump, is cut off, or has a damaged line. The lines before that
                are loaded.
            kombu.exceptions.OperationalError: Redis cannot be reached. Loaded tasks stay.
        """
        from .load import load

        return load(
            self.services,
            lines,
            skip_existing=skip_existing,
            paused=paused,
            dry_run=dry_run,
            progress=progress,
        )
