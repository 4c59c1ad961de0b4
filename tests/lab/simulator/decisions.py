"""The decisions of a seed. Each has a name, and stays the same when others are left out.

So a history can be shortened: a fault, a call or a process is left out by its name.
"""

import hashlib
import random
from collections.abc import Mapping

# The usual rate of each fault; each seed has its own mixture.
RATES = {
    # Of a request and its reply.
    "refused": 0.03,  # the connection is refused: nothing was sent
    "reset": 0.03,  # the connection breaks while the request is under way
    "lost": 0.04,
    "held": 0.08,  # it arrives late
    "doubled": 0.05,  # it arrives a second time
    "reply lost": 0.05,
    "reply held": 0.04,
    "word lost": 0.05,  # to a scanner that listens, and the connection with it
    # Of a process.
    "interrupted": 0.08,  # a call, as by a signal
    "asleep": 0.02,  # between two steps
    "stopped": 0.002,  # the same, right after it has looked at its clock
    "dead": 0.02,  # a scanner or a worker, between two steps; another one takes its place
    # Of the broker.
    "broker away": 0.05,
    "publish lost": 0.04,
    "publish late": 0.04,  # it arrives, but later than the scanner waits
    "confirm lost": 0.05,
    "publish refused": 0.04,
    # Of the broker that gives messages to workers.
    "taken back": 0.1,  # sooner than its worker believes
    "ack lost": 0.05,
    # Of Redis's machine.
    "clock forward": 0.01,
    "clock back": 0.01,
    "scripts forgotten": 0.005,
}


# A request of a call that will be interrupted, so that it arrives when its caller has gone on.
OVERTAKEN = {"overtaken": 0.5}
FEW, OFTEN = 3, 8  # how few kinds of faults, and how much more often


def mixture(dice: random.Random) -> dict[str, float]:
    """How often each fault happens in a history: all of them at times, or few of them often."""
    if dice.random() < 0.5:
        return {kind: rate * dice.choice((0, 0, 1, 5)) for kind, rate in RATES.items()}
    return {kind: RATES[kind] * OFTEN for kind in dice.sample(sorted(RATES), FEW)}


class Decisions:
    """The decisions of one seed, without those that are left out.

    Args:
        seed: Any number.
        without: Names of what is left out.
        rates: How often each fault happens; by default as the seed says.

    Attributes:
        taken: The names of the faults, calls and processes that there were, in order.
        calm: No more faults: the end of a history, in which everything has to recover.
        leases: The share of runs whose workers hold keys by a lease.
    """

    def __init__(
        self,
        seed: int,
        without: frozenset[str] = frozenset(),
        rates: Mapping[str, float] | None = None,
    ):
        self._seed = str(seed).encode()
        self._without = without
        self._rates = OVERTAKEN | (mixture(self.dice("mixture")) if rates is None else rates)
        # By a number of its own, so that histories of half the seeds stay as they were.
        usual = self.dice("leases").choice((0, 0.5)) if rates is None else 0
        self.leases: float = self._rates.get("leases", usual)
        self.taken: list[str] = []
        self.calm = False

    def dice(self, name: str) -> random.Random:
        """Random numbers for *name*."""
        return random.Random(self._number(name))

    def fault(self, kind: str, where: str) -> random.Random | None:
        """The numbers of a fault, if it happens there."""
        rate = self._rates.get(kind, 0)
        if self.calm or not rate:
            return None
        name = f"{where} {kind}"
        if self._number(name) >= rate * 2**64 or not self.takes(name):
            return None
        return self.dice(name)

    def takes(self, name: str) -> bool:
        """Whether this name is not left out."""
        if name in self._without:
            return False
        self.taken.append(name)
        return True

    def _number(self, name: str) -> int:
        digest = hashlib.blake2b(name.encode(), digest_size=8, key=self._seed).digest()
        return int.from_bytes(digest, "big")
