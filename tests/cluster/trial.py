"""One fault of a Cluster under callers and a scanner: how long calls waited, and the books.

    callers --> six shards on three masters, each with a replica --scanner, relay--> a plain Redis
                       ^ the fault: at the owner of the meeting place

A failover to a replica loses what was not replicated. So a call on the faulty node counts only if
the replica had caught up, or if it began after the node was gone; with ``delayq_wait_replicas``, if
the call returned that a replica has it.
"""

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from celery_delayq import DelayQ
from celery_delayq.core.store.keys import shard_of
from celery_delayq.errors import StoreUnavailable
from tests.sentinel.work import QUEUE, Caller, Told, all_due_has_left, note
from tests.support.apps import new_app
from tests.support.clusters import ClusterServers, Node
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

SHARDS = 6
BEFORE, AFTER = 40, 20  # calls of each caller


@dataclass
class Window:
    """When a failover may have lost changes; both are 0 if there was none."""

    caught_up: float = 0.0
    gone: float = 0.0

    def excuses(self, call: Told) -> bool:
        return call.replicas == 0 and call.ended > self.caught_up and call.began < self.gone


def longest(caller: Caller, since: float) -> float:
    """The longest time without a successful call, from then on."""
    ends = [one.ended for one in caller.calls if one.error is None and one.ended > since]
    return max((after - before for before, after in itertools.pairwise([since, *ends])), default=0)


class Arrivals:
    """Takes the messages from the broker's list, in a thread."""

    def __init__(self, broker: RedisServer):
        self.copies: list[tuple[str, bool, float]] = []  # id, whether it is marked, Unix time
        self._client = broker.client()
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self.over.is_set():
            found = self._client.brpop(QUEUE, 0.2)
            if found:
                headers = json.loads(found[1])["headers"]
                marked = bool(headers.get("delayq_redelivered"))
                self.copies.append((headers["id"], marked, time.time()))


@dataclass
class Trial:
    """The outcome.

    Attributes:
        there: The longest time without a successful call on the faulty node, in seconds.
        others: The same on the other nodes.
        calls: How many succeeded.
        failed: How many raised ``StoreUnavailable``.
        lost: Tasks that the failover itself lost.
        twice: Tasks that arrived more than once, marked or by the failover's fault.
        problems: A sentence for each thing that is wrong.
    """

    there: float
    others: float
    calls: int
    failed: int
    lost: int = 0
    twice: int = 0
    problems: list[str] = field(default_factory=list)


Fault = Callable[[ClusterServers, Node], Window]


def tried(fault: Fault, *, binary: str | None = None, **conf: object) -> Trial:
    """Let a fault happen in a fresh Cluster under load."""
    with ExitStack() as stack:
        cluster = stack.enter_context(
            ClusterServers(3, "--cluster-require-full-coverage", "no", replica=3, binary=binary)
        )
        broker = stack.enter_context(RedisServer())

        def new_delayq() -> DelayQ:
            asked = {"delayq_url": cluster.url(), "delayq_shards": SHARDS, **conf}
            app = new_app(
                broker.url(), task_default_queue=QUEUE, delayq_safety_interval=0.5, **asked
            )
            made = DelayQ(app)
            made.note = app.task(name="note", shared=False)(note)
            return stack.enter_context(closing(made))

        delayq, node = new_delayq(), cluster.owner
        shards = delayq.services.scripts
        there = {n for n, one in enumerate(shards) if cluster.owner_of(one.keys.slot) is node}
        scanner = new_delayq().scanner()
        stack.callback(scanner.stop)
        scanner.start()
        at_node = Caller(new_delayq(), "there", lambda one: shard_of(one, SHARDS) in there)
        others = Caller(new_delayq(), "other", lambda one: shard_of(one, SHARDS) not in there)
        with Arrivals(broker) as arrivals:
            with at_node, others:
                eventually(lambda: min(len(at_node.calls), len(others.calls)) > BEFORE)
                began = time.monotonic()
                window = fault(cluster, node)
                ended = time.monotonic()
                for each in (at_node, others):
                    eventually(lambda one=each: _after(one, ended) > AFTER, 60)
            eventually(lambda: _is_all_away(delayq), 60)
            copies = _settled(arrivals)
        trial = Trial(
            longest(at_node, began),
            longest(others, began),
            *(sum((one.error is None) is ok for one in [*at_node.calls, *others.calls])
              for ok in (True, False)),
        )  # fmt: skip
        _books(trial, delayq, (at_node, others), copies, window)
        return trial


def _after(caller: Caller, moment: float) -> int:
    return sum(one.began > moment for one in caller.done("schedule"))


def _is_all_away(delayq: DelayQ) -> bool:
    try:
        return all_due_has_left(delayq)
    except StoreUnavailable:
        return False


def _settled(arrivals: Arrivals) -> list[tuple[str, bool, float]]:
    """Wait until no more copies come."""
    count = -1
    while count < len(arrivals.copies):
        count = len(arrivals.copies)
        arrivals.over.wait(0.5)
    return list(arrivals.copies)


def _books(
    trial: Trial, delayq: DelayQ, callers: tuple[Caller, Caller], copies: list, window: Window
) -> None:
    at_node = callers[0]
    arrived = Counter(task_id for task_id, _, _ in copies)
    unmarked = Counter(task_id for task_id, marked, _ in copies if not marked)
    waiting = {task.id for task in delayq.tasks()}
    asked_to_cancel = {
        one.task_id for each in callers for one in each.calls if one.what == "cancel"
    }
    for each in callers:
        scheduled = {one.task_id: one for one in each.done("schedule")}
        for task_id, call in scheduled.items():
            is_excused = each is at_node and window.excuses(call)
            if not (task_id in waiting or arrived[task_id] or task_id in asked_to_cancel):
                trial.lost += is_excused
                trial.problems += [] if is_excused else [f"{task_id} is lost"]
            if unmarked[task_id] > 1:
                # An acknowledgement of the relay that the replica did not have.
                is_excused = each is at_node and call.ended < window.gone
                trial.problems += [] if is_excused else [f"{task_id} came twice, unmarked"]
        for call in each.done("cancel"):
            is_there = call.task_id in waiting or arrived[call.task_id]
            if is_there and not (each is at_node and window.excuses(call)):
                trial.problems.append(f"{call.task_id} was cancelled, and is still there")
        trial.problems += [f"a caller heard {error!r}" for error in each.odd]
        due = {one.task_id: one.due for one in each.calls if one.what == "schedule"}
        early = [one for one, _, at in copies if one in due and at < due[one]]
        trial.problems += [f"{one} came early" for one in early]
    trial.twice = sum(count > 1 for count in arrived.values())
    trial.problems += [f"check: {finding}" for finding in delayq.check()]
