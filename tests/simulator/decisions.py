"""What a seed decides. Each decision has a name, and stays the same when others are left out.

So a history can be shortened: a fault, a call or a process is left out by its name.
"""

import hashlib
import random

# How often a fault happens where it can, before a seed's own mixture: see Decisions.
RATES = {
    # Of a request and its reply.
    "refused": 0.03,  # the connection is refused: nothing was sent
    "reset": 0.03,  # the connection breaks while the request is under way
    "lost": 0.04,
    "held": 0.08,  # it arrives late
    "doubled": 0.05,  # it arrives a second time
    "reply lost": 0.05,
    "reply held": 0.04,
    # Of a process.
    "interrupted": 0.08,  # a call, as by a signal
    "overtaken": 0.15,  # a request of one that will be: it arrives when its caller has gone on
    "asleep": 0.02,  # between two steps
    "stopped": 0.002,  # the same, right after it has looked at its clock
    "dead": 0.02,  # a scanner, between two steps; another one comes in its place
    # Of the broker.
    "broker away": 0.05,
    "publish lost": 0.04,
    "publish late": 0.04,  # it arrives, but later than the scanner waits
    "confirm lost": 0.05,
    "publish refused": 0.04,
    # Of Redis's machine.
    "clock forward": 0.01,
    "clock back": 0.01,
    "scripts forgotten": 0.005,
}


class Decisions:
    """The decisions of one seed, without those that are left out.

    Attributes:
        taken: The names of the faults, calls and processes that there were, in order.
        calm: No more faults: the end of a history, in which all is to come right.
    """

    def __init__(self, seed: int, without: frozenset[str] = frozenset()):
        self._seed = str(seed).encode()
        self._without = without
        self.taken: list[str] = []
        self.calm = False
        mixture = self.dice("mixture")
        # A few faults often find more than all of them seldom.
        self._rates = {kind: rate * mixture.choice((0, 0, 1, 5)) for kind, rate in RATES.items()}

    def dice(self, name: str) -> random.Random:
        """Numbers for whatever *name* needs."""
        return random.Random(self._number(name))

    def fault(self, kind: str, where: str) -> random.Random | None:
        """The numbers of a fault, if it happens there."""
        rate = self._rates[kind]
        if self.calm or not rate:
            return None
        name = f"{where} {kind}"
        if self._number(name) >= rate * 2**64 or not self.takes(name):
            return None
        return self.dice(name)

    def takes(self, name: str) -> bool:
        """Whether what has this name is not left out."""
        if name in self._without:
            return False
        self.taken.append(name)
        return True

    def _number(self, name: str) -> int:
        digest = hashlib.blake2b(name.encode(), digest_size=8, key=self._seed).digest()
        return int.from_bytes(digest, "big")
