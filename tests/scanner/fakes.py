"""An engine, a wake-up and a relay in memory, and a clock that each wait moves.

The scanner runs in the test's own thread: every wait ends at once, however long it should be.
"""

import math
import threading

from celery_delayq.core.handover.relay import Batch
from celery_delayq.core.handover.scanner import Scanner
from celery_delayq.core.hooks import Hooks
from celery_delayq.core.store.delivery import Seen

START_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


class World:
    """The time, the tasks that wait, and a log of the scanner's actions."""

    def __init__(self, *, batch_size=10, lease=30.0, safety_interval=5.0, **parts):
        self.us = 0
        self.log = []
        self.waits = []
        self.dead = []
        self.handed_over = []
        self.downs = []
        self.hears = False
        self.ends_after = 1
        self.pauses = []
        self._acts = {}
        self._thread, self._others = threading.current_thread(), threading.Semaphore(0)
        self.steps = FakeEngine(self, batch_size)
        self.wakeup = FakeWakeup(self)
        self.relay = FakeRelay(self)
        self.relay.steps = self.steps
        self.scanner = Scanner(
            [self.relay],
            self.wakeup,
            safety_interval=safety_interval,
            lease=lease,
            hooks=Hooks(
                dead=lambda *told: self.dead.append(told),
                handed_over=self.handed_over.append,
                broker_down=lambda: self.downs.append(self.us),
                hears_handed_over=lambda: self.hears,
            ),
            **parts,
        )

    def monotonic(self) -> float:
        return self.us / 1_000_000

    @property
    def now_ms(self) -> float:
        return START_MS + self.us / 1000

    def run(self, *, waits=1) -> None:
        """Let the scanner run until it has waited *times* times."""
        self.ends_after = waits
        try:
            self.scanner.run()
        finally:
            self._others.release(len(self.pauses) + 1)

    def after(self, waits: int, act) -> None:
        """Call *act* at the end of that wait."""
        self._acts[waits] = act

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        # Rounded up, as a real wait does not end early.
        self.us += math.ceil(seconds * 1_000_000)
        self._acts.pop(len(self.waits), lambda: None)()
        if len(self.waits) >= self.ends_after:
            self.scanner.stop()

    def wait_for(self, event, seconds, wait) -> bool:
        """What waiting for an event is: the scanner's own takes no time, and is counted.

        A thread of the scanner's waits until the test lets one go on, or the scanner has ended.
        """
        thread = threading.current_thread()
        if seconds and thread is self._thread:
            self.say("pause")
            self.wait(seconds)
        elif seconds and thread.name.startswith("delayq-"):
            self.pauses.append(seconds)
            self._others.acquire()
        else:
            return wait(event, seconds)
        return event.is_set()

    def say(self, word: str) -> None:
        self.log.append(word)


class FakeEngine:
    """Due times in ms; `on_move` is called at each pass, and may raise."""

    name = "fake"
    node = ("fake", 1)

    def __init__(self, world, batch_size):
        self._world = world
        self._batch_size = batch_size
        self.due, self.relay, self.leased, self.back = [], [], [], []
        self.moved = []
        self.lateness = []
        self.dead = []
        self.asked = []
        self.told = []
        self.has_timer = True
        self.scanners = 0
        self.on_move = lambda: None

    def hand_over(self, *, asleep, relay_in, wants) -> Seen:
        self._world.say("hand_over")
        self.asked.append((asleep, relay_in))
        self.told.append(wants)
        self.on_move()
        ripe = sorted(when for when in self.due if when <= self._world.now_ms)[: self._batch_size]
        for when in ripe:
            self.due.remove(when)
            self.lateness.append(self._world.now_ms - when)
        self.moved += ripe
        dead, self.dead = self.dead, []
        return Seen(
            now_us=START_MS * 1000 + self._world.us,
            handed_over=len(ripe),
            due=min(self.due, default=None),
            relay=min(self.relay, default=None),
            leased=min(self.leased, default=None),
            back=min(self.back, default=None),
            has_timer=self.has_timer,
            dead=dead,
            read_at=self._world.monotonic(),
            ids=[f"id-{when}" for when in ripe] if wants else [],
            scanners=self.scanners,
        )

    def reclaim(self) -> list[str]:
        self._world.say("reclaim")
        over = [when for when in self.leased if when <= self._world.now_ms]
        self.leased = [when for when in self.leased if when > self._world.now_ms]
        self.relay += over
        return [f"id-{when}" for when in over]

    def leave(self) -> None:
        self._world.say("leave")

    def close(self) -> None:
        """Connections are outside these tests."""


class FakeWakeup:
    def __init__(self, world):
        self._world = world
        self.on_wait = lambda: None
        self.on_rest = lambda: None

    def listen(self) -> bool:
        return False

    def wait(self, seconds: float) -> set[int]:
        self._world.say("wait")
        self._world.wait(seconds)
        self.on_wait()
        return set()

    def rest(self, seconds: float) -> None:
        self.on_rest()
        self._world.say("pause")
        self._world.wait(seconds)

    def interrupt(self) -> None:
        self._world.say("interrupt")

    def close(self) -> None:
        self._world.say("close wakeup")


class FakeRelay:
    def __init__(self, world):
        self._world = world
        self.on_batch = lambda: None
        self.published = []

    def batch(self, stopping) -> Batch:
        self._world.say("relay")
        self.on_batch()
        shard_steps = self._world.steps
        ripe = sorted(when for when in shard_steps.relay if when <= self._world.now_ms)[:10]
        for when in ripe:
            shard_steps.relay.remove(when)
        self.published += ripe
        return Batch(len(ripe), len(ripe))

    def close(self) -> None:
        self._world.say("close relay")
