"""A place where faults are put in: servers, scanner processes, callers, and a watch at the queue.

callers ---> proxy ---> store <--- proxy <--- scanners ---> proxy ---> broker <--- watch
                          '------------ directly: the store is the broker ------------'
"""

import contextlib
import json
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from celery_delayq import State
from tests.lab.benchmarks.children import Child
from tests.lab.faults.callers import Caller, callers, new_delayq, now_ms
from tests.lab.faults.history import Call, Copy, Kept, Problem, Verdict, judge
from tests.lab.faults.processes import STARTED, ScannerProcess
from tests.lab.faults.proxy import Proxy
from tests.lab.faults.strangers import Strangers
from tests.lab.faults.watches import ListWatch, QueueWatch
from tests.support.rabbit_server import RabbitServer
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker import WorkerProcess

KEYLESS = ("wrong_key", "records")  # a finding's kind and part

DIRECT, TO_REDIS, TO_RABBIT = "direct", "relay to Redis", "relay to RabbitMQ"
PATHS = (DIRECT, TO_REDIS, TO_RABBIT)

TIMEOUT, LEASE = 1.0, 5.0  # seconds; short, so that they run out during the run
SETTINGS = {
    "delayq_timeout": TIMEOUT,
    "delayq_lease": LEASE,
    "delayq_safety_interval": 0.5,
    "delayq_batch_size": 20,  # a burst takes many calls, so that a fault comes in between
}
BURST = 300
SLOWNESS = (0.005, 0.05)  # seconds: a call to the store, a piece with many messages
SOON = 600_000  # ms: tasks that are due later than that stay
SETTLED = 120.0  # seconds after the last fault in which all due tasks have to go


@dataclass
class Outcome:
    """The outcome of a run.

    ``settled``: whether all due tasks went in time. ``findings``: those of `check`.
    """

    verdict: Verdict
    settled: bool
    findings: list[str]
    copies: list[Copy] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    @property
    def differences(self) -> list[str]:
        """Everything that is not as it should be."""
        found = [line for problem in self.verdict.faults for line in self._told(problem)]
        found += [f"check: {finding}" for finding in self.findings]
        if self.verdict.missing:
            found.append(f"books: {self.verdict.missing} of {self.verdict.scheduled} are missing")
        return found if self.settled else [*found, "some due tasks did not go in time"]

    def _told(self, problem: Problem) -> Iterator[str]:
        """A problem, and everything known of its id."""
        yield str(problem)
        facts = [one for one in (*self.calls, *self.copies) if one.task_id == problem.task_id]
        yield from (f"    {fact}" for fact in facts)

    def seconds_to_recover(self, since: int) -> float:
        """From *since*, in Unix ms, until all tasks due by then had arrived."""
        first: dict[tuple[str, int], Copy] = {}
        for copy in self.copies:
            seen = first.setdefault((copy.task_id, copy.version), copy).seen
            if copy.seen < seen:
                first[copy.task_id, copy.version] = copy
        late = [copy.seen - since for copy in first.values() if copy.due <= since]
        return max([0, *late]) / 1000


class Site:
    """One path with its servers, from ``with`` on; ``finish`` ends the callers and judges.

    Args:
        path: One of PATHS.
        seed: Of everything random in it.
        rabbit: The RabbitMQ to use; one of its own by default.
        config: Of the store, such as ``"--appendonly", "yes"``.
        workers: Whether scanners run in workers, and not by themselves.
        processes: How many processes of callers.
        strangers: Whether processes without this package send messages that a worker adopts; over
            RabbitMQ.

    Attributes:
        struck: How many tasks of each burst were at the queue when its fault came.
    """

    def __init__(
        self,
        path: str,
        seed: str,
        *,
        rabbit: RabbitServer | None = None,
        config: Sequence[str] = (),
        workers: bool = False,
        processes: int = 2,
        pace: float = 0.04,
        strangers: bool = False,
    ):
        self.path = path
        self.random = random.Random(f"{seed} site")
        self.queue = f"arrivals-{now_ms()}"
        self.scanners: list[ScannerProcess | WorkerProcess] = []
        self.struck: list[int] = []
        self._seed, self._config, self._workers = seed, config, workers
        self._processes, self._pace = processes, pace
        self._rabbit = rabbit
        self._has_strangers = strangers
        self.strangers: Strangers | None = None
        self._children: list[Child] = []
        self._started = 0
        self._over = threading.Event()
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._stack.close()

    def _start(self) -> None:
        enter = self._stack.enter_context
        self.store = enter(RedisServer(*self._config))
        self.broker = self._new_broker()
        self.callers_link, self.scanners_link = (enter(Proxy(self.store.port)) for _ in range(2))
        self.broker_link = enter(Proxy(self.broker.port))
        self.delayq = new_delayq(self._conf(self.store.port))
        self._stack.callback(self.delayq.close)
        self._burster = Caller(self.delayq, "burst", self._seed, pace=0)
        self.watch = enter(self._new_watch())
        scanners = [self._new_scanner() for _ in range(2)]
        conf = self._conf(self.callers_link.port)
        for number in range(self._processes):
            child = Child(callers, conf, f"c{number}", self._seed, self._pace)
            self._children.append(enter(child))
        if self._has_strangers:
            conf = self._conf(self.scanners_link.port)
            where = (self.broker.url, conf, self.store.folder)
            self.strangers = enter(Strangers(*where, self._seed))
        for scanner in scanners:
            scanner.wait_log(STARTED, timeout=60)
        for child in self._children:
            child.say("go")

    def _new_broker(self) -> RedisServer | RabbitServer:
        if self.path == DIRECT:
            return self.store
        if self.path == TO_REDIS:
            return self._stack.enter_context(RedisServer(*self._config))
        return self._rabbit or self._stack.enter_context(RabbitServer())

    def _new_watch(self) -> ListWatch | QueueWatch:
        if self.path == TO_RABBIT:
            return QueueWatch(self.broker.url, self.queue)
        return ListWatch(self.broker.client(), self.queue)

    def _conf(self, store: int) -> dict:
        """The configuration of an app whose store is at this port."""
        conf = {**SETTINGS, "task_default_queue": self.queue}
        if self.path == DIRECT:
            return {**conf, "broker_url": f"redis://127.0.0.1:{store}/0"}
        kind = "amqp://guest:guest@" if self.path == TO_RABBIT else "redis://"
        end = "//" if self.path == TO_RABBIT else "/0"
        conf["delayq_url"] = f"redis://127.0.0.1:{store}/0"
        return {**conf, "broker_url": f"{kind}127.0.0.1:{self.broker_link.port}{end}"}

    # For the faults.

    @property
    def direct(self) -> bool:
        return self.path == DIRECT

    def start_scanner(self) -> None:
        """One more scanner: alone, or in a worker that takes nothing from the queue."""
        self._new_scanner().wait_log(STARTED, timeout=60)

    def _new_scanner(self) -> ScannerProcess | WorkerProcess:
        self._started += 1
        log = self.store.folder / f"scanner-{self._started}.log"
        conf = self._conf(self.scanners_link.port)
        if self._workers:
            options = ("-P", "solo", "-Q", f"{self.queue}-idle")
            env = {"DELAYQ_TEST_CONF": json.dumps(conf)}
            made = WorkerProcess("tests.lab.faults.scan_app", *options, log=log, env=env)
        else:
            made = ScannerProcess(conf, log=log)
        self._stack.callback(made.kill)
        self.scanners.append(made)
        return made

    @contextlib.contextmanager
    def burst(self) -> Iterator[None]:
        """Let many tasks fall due at once, over slow links; the block runs during the hand-over."""
        due = now_ms() + 1000
        self._burster.bulk(BURST, due)
        self.pause((due - now_ms()) / 1000)
        self.scanners_link.slowness, self.broker_link.slowness = SLOWNESS
        # During a lasting fault none may come.
        with contextlib.suppress(AssertionError):
            eventually(lambda: self.watch.seen(due) >= self.random.randint(1, BURST // 2), 1)
        self.struck.append(self.watch.seen(due))
        yield
        self.scanners_link.slowness = self.broker_link.slowness = 0.0

    def pause(self, seconds: float) -> None:
        """Let a fault last, or the callers work."""
        self._over.wait(max(0.0, seconds))

    def overdue(self) -> bool:
        counts = self.delayq.counts()
        return counts.next_due_ms is not None and counts.next_due_ms < counts.now_ms - 300

    # The end.

    def finish(self) -> Outcome:
        calls = [call for child in self._children for call in child.ask("stop")]
        calls += self._burster.history
        sent, ran = self.strangers.finish(SETTLED) if self.strangers else ([], [])
        calls += sent
        settled = self._settle()
        ended = now_ms()
        # An entry that comes back from a lease waits without its key if another entry has that.
        found = [one for one in self.delayq.check() if (one.kind, one.part) != KEYLESS]
        findings = [str(one) for one in found]
        copies, kept = self.watch.read() + ran, self._kept(calls)
        verdict = judge(calls, copies, kept, ended, relayed=not self.direct)
        return Outcome(verdict, settled, findings, copies, calls)

    def _settle(self) -> bool:
        def done() -> bool:
            counts = self.delayq.counts()
            late = counts.next_due_ms is not None and counts.next_due_ms < counts.now_ms + SOON
            # Entries that come back from a pause at a rate, or wait to be retried, are due as well.
            return not (late or counts.in_flight or counts.paused or counts.refused)

        try:
            return eventually(done, SETTLED)
        except AssertionError:
            return False

    def _kept(self, calls: list[Call]) -> list[Kept]:
        kept = [_kept(task) for task in self.delayq.tasks()]
        counts = self.delayq.counts()
        if counts.dead or counts.in_flight or counts.scheduled != len(kept):
            # The listing has only waiting entries; so each id is looked up.
            tasks = map(self.delayq.get, {call.task_id for call in calls})
            kept = [_kept(task) for task in tasks if task is not None]
        return kept


def _kept(task) -> Kept:
    due = round(task.due.timestamp() * 1000)
    return Kept(task.id, task.args[0], due, dead=task.state is State.DEAD)
