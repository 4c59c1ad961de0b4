"""One shard, as a process reaches it: what every step takes."""

from __future__ import annotations

from .caller import Calls
from .keys import Keys
from .member import Member, Membership
from .scripts import Scripts


class Shard:
    """A process's way to one shard; its threads share it.

    Args:
        scripts: The shard's.
        membership: What this process has of what all agree on.
        scanner: Whether it hands over.

    Attributes:
        scripts: For steps that only read, and for those of a scanner.
        member: What this process is there.
        calls: For a caller's steps that change something.
        timeout: Seconds that a call takes at most.
        templates: Names of some that this process has sent.
    """

    def __init__(self, scripts: Scripts, membership: Membership, *, scanner: bool = False) -> None:
        self.scripts = scripts
        self.member = Member(scripts, membership, scanner=scanner)
        self.calls = Calls(scripts, self.member.join, membership.timeout)
        self.timeout = membership.timeout
        self.templates: set[bytes] = set()

    @property
    def keys(self) -> Keys:
        """The names of its keys."""
        return self.scripts.keys
