"""One shard, as a process reaches it; each step takes one."""

from __future__ import annotations

from .caller import Calls
from .keys import Keys
from .registration import Membership, Registration
from .scripts import Scripts


class Shard:
    """A process's access to one shard; its threads share it.

    Args:
        scripts: The shard's.
        membership: This process's settings.
        number: Its number among the store's shards.
        scanner: Whether it delivers tasks.
        meeting_place: The keys common to all numbers of shards; ``None`` if they are this shard's.

    Attributes:
        number: Its number among the store's shards.
        scripts: For steps that only read, and for a scanner's.
        registration: How this process joins the store.
        calls: For a caller's steps that change the store.
        templates: Names of templates that this process has sent.
    """

    def __init__(
        self,
        scripts: Scripts,
        membership: Membership,
        number: int = 0,
        *,
        scanner: bool = False,
        meeting_place: Registration | None = None,
    ) -> None:
        self.number = number
        self.scripts = scripts
        self.registration = Registration(scripts, membership, scanner=scanner)
        self._meeting_place = meeting_place
        if meeting_place is not None:
            self.registration.warned = meeting_place.warned  # one warning for all shards
        self.calls = Calls(scripts, self._join, membership.timeout)
        self.templates: set[bytes] = set()

    @property
    def keys(self) -> Keys:
        """The names of its keys."""
        return self.scripts.keys

    def check_membership(self) -> str:
        """Check that this process may read the shard; see :meth:`Registration.check_membership`."""
        if self._meeting_place is not None:
            self._meeting_place.check_membership()
        return self.registration.check_membership()

    def meet(self) -> None:
        """Register at the meeting place; without that, nothing may be written to any shard."""
        (self._meeting_place or self.registration).join()

    def _join(self, until: float | None, step: str) -> tuple[int, str]:
        # The meeting place first: a process that is refused there has written nothing here.
        if self._meeting_place is not None:
            self._meeting_place.join(until, step)
        return self.registration.join(until, step)
