"""A Cluster of three masters, and apps whose store is in it and whose broker is a plain Redis."""

import pytest

from tests.relay.house import House, new_name
from tests.support.clusters import ClusterServers

TIMEOUT = 20.0  # seconds: `delayq_timeout` of these tests, which a busy machine does not take


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
