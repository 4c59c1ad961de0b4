from contextlib import suppress

import pytest
from amqp.exceptions import ChannelError
from kombu import Queue
from kombu.transport import memory

from celery_delayq.errors import BrokerDown
from tests.lab.faults.proxy import Proxy
from tests.relay.house import House, new_name
from tests.support.shards import put_message
from tests.support.waiting import PATIENCE

LONG = 10 * PATIENCE


@pytest.fixture(autouse=True)
def patient(limits):
    """A busy machine's slow server is not a lost one, and a connection does not age meanwhile."""
    limits(answer_s=PATIENCE, publish_s=PATIENCE, broker_idle_s=LONG)
    limits(broker_connect_s=PATIENCE, broker_reach_s=PATIENCE)


@pytest.fixture
def make_house(make_app, redis_url):
    """Make a house: ``make_house(broker_url, where=…, delayq_lease=5)``."""
    made = []

    def make(broker, where=None, **conf):
        conf.setdefault("task_default_queue", new_name())
        conf.setdefault("delayq_safety_interval", 0.5)
        conf.setdefault("delayq_lease", LONG)
        conf.setdefault("delayq_timeout", PATIENCE)
        conf.setdefault("delayq_url", redis_url)
        app = make_app(broker, **conf)
        made.append(House(app, where or broker))
        return made[-1]

    yield make
    for house in made:
        house.close()


@pytest.fixture
def rabbit(make_house, rabbitmq_server):
    """A house whose broker is RabbitMQ; its default queue exists."""
    house = make_house(rabbitmq_server.url)
    house.declare(Queue(house.queue))
    return house


@pytest.fixture
def proxy(rabbitmq_server):
    with Proxy(rabbitmq_server.port) as one:
        yield one


@pytest.fixture
def behind(make_house, rabbitmq_server, proxy):
    """The same through a proxy that can misbehave."""
    house = make_house(f"amqp://guest:guest@127.0.0.1:{proxy.port}//", where=rabbitmq_server.url)
    house.declare(Queue(house.queue))
    return house


@pytest.fixture
def other_redis(start_redis, make_house):
    """A house whose broker is not the Redis that holds its tasks."""
    server = start_redis()
    house = make_house(server.url())
    house.client = server.client()
    house.server = server
    return house


class Refusing(memory.Channel):
    """A broker in memory that refuses what is for one queue, and is lost over another one's."""

    def _put(self, queue, message, **options):
        if queue.startswith("refused"):
            raise ChannelError("no")
        if queue.startswith("unknown"):
            raise ConnectionResetError("gone")
        super()._put(queue, message, **options)


@pytest.fixture
def deal(monkeypatch, redis_server):
    """Relay due tasks to a broker in memory, with these verdicts; "unknown" ends the batch.

    ``deal(house, "sent", "refused", "dead", "unknown")`` returns the ids.
    """
    monkeypatch.setattr(memory.Transport, "Channel", Refusing)

    def deal(house, *words):
        dealt = [house.due_now(queue=f"{word}-{new_name()}").id for word in words]
        with redis_server.client() as client:
            for task_id, word in zip(dealt, words, strict=True):
                if word == "dead":
                    put_message(client, task_id, b"{")
        relay = house.relay()
        with suppress(BrokerDown):
            # A refusal ends a batch, too; the others come with the next one.
            while relay.batch(lambda: False).claimed:
                pass
        return dealt

    return deal
