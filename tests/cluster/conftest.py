"""A Cluster of three masters, and apps whose store is in it and whose broker is a plain Redis."""

import contextlib
import threading
import time

import pytest

from celery_delayq.contrib import cluster as slots
from celery_delayq.contrib import moving
from celery_delayq.contrib.care.doctor import examine
from celery_delayq.contrib.cluster import SlotOwner
from celery_delayq.core import clock
from tests.relay.house import House, new_name
from tests.support.clusters import NODE_TIMEOUT_MS, ClusterServers

TIMEOUT = 20.0  # seconds: `delayq_timeout` of these tests, which a busy machine does not take

FAR = 4_102_444_800  # 2100-01-01
HURRIED = (slots.TRY, moving.PATIENCE)
CALM_MS = 60_000


def wait_for_nodes(limits, seconds, patience):
    """Set how long a node may take to name owners, and a call before it asks who the owner is."""
    limits(slots_try_s=seconds, moving_s=patience)


@pytest.fixture(autouse=True)
def unhurried(limits):
    """A node may take as long as it does on a busy machine, and gets no second question."""
    wait_for_nodes(limits, TIMEOUT, TIMEOUT)


@pytest.fixture
def hurried(limits):
    """For a test with a silent node: the package's own times."""
    return lambda: wait_for_nodes(limits, *HURRIED)


def calm(cluster):
    """Let no replica take over because a busy machine lets its master wait."""
    for one in cluster.nodes:
        one.client().config_set("cluster-node-timeout", CALM_MS)
    return cluster


def put(house, task_id, due=FAR) -> None:
    house.task.apply_async(task_id=task_id, delayq_at=due)


def listed(house) -> set[str]:
    return {task.id for task in house.delayq.tasks()}


def questions(cluster) -> int:
    """The number of questions to its nodes for the owners of slots."""
    told = [node.client().info("commandstats") for node in cluster.masters]
    return sum(one.get("cmdstat_cluster|slots", {"calls": 0})["calls"] for one in told)


def lines_of(house, name) -> list[tuple[str, str]]:
    """Level and text of the doctor's lines of this name."""
    lines = examine(house.delayq.services)
    return [(line.level, line.found) for line in lines if line.name == name]


def let_a_replica_take_over(cluster, owner):
    """Let the others be quick to take for down what does not answer, as *owner* does no more."""
    for one in cluster.nodes:
        if one is not owner:
            one.client().config_set("cluster-node-timeout", NODE_TIMEOUT_MS[True])


@pytest.fixture
def ends_when_refused(monkeypatch):
    """A block in which the time of this thread's call is over once it was refused a few times."""
    caller = threading.current_thread()

    @contextlib.contextmanager
    def ends():
        refused, again_after = [], SlotOwner.again_after

        def is_caller():
            return threading.current_thread() is caller

        def counted(self, *told):
            if is_caller():
                refused.append(told)
            return again_after(self, *told)

        def monotonic():
            return time.monotonic() + 2 * TIMEOUT * (is_caller() and len(refused) > 2)

        with monkeypatch.context() as patch:
            patch.setattr(SlotOwner, "again_after", counted)
            patch.setattr(clock, "monotonic", monotonic)
            yield

    return ends


@pytest.fixture(scope="package")
def standing_cluster():
    """A Cluster for all of these tests; they move slots, but damage no node."""
    with ClusterServers() as cluster:
        yield cluster


@pytest.fixture
def cluster(standing_cluster):
    standing_cluster.empty()
    return standing_cluster


@pytest.fixture
def make_house(make_app, redis_url):
    """Make a house: ``make_house(cluster.url(), delayq_lease=5)``."""
    made = []

    def make(url, broker=redis_url, **conf):
        conf = {
            "task_default_queue": new_name(),
            "delayq_safety_interval": 0.5,
            "delayq_timeout": TIMEOUT,
            "delayq_shards": 1,
            "delayq_url": url,
            **conf,
        }
        made.append(House(make_app(broker, **conf), broker))
        return made[-1]

    yield make
    for house in made:
        house.close()


@pytest.fixture
def house(cluster, make_house):
    return make_house(cluster.url())
