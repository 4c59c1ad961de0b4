"""One shard, as a process reaches it; each step takes one."""

from __future__ import annotations

from .caller import Calls
from .keys import Keys
from .member import Member, Membership
from .scripts import Scripts


class Shard:
    """A process's access to one shard; its threads share it.

    Args:
        scripts: The shard's.
        membership: This process's settings.
        scanner: Whether it delivers tasks.

    Attributes:
        scripts: For steps that only read, and for a scanner's.
        member: This process's membership.
        calls: For a caller's steps that change the store.
        timeout: The longest that a call may take, in seconds.
        templates: Names of templates that this process has sent.
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
