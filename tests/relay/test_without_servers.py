"""The whole way without a server process: a store in fakeredis, a broker in memory."""

import threading

import pytest
from fakeredis import TcpFakeServer
from kombu import Queue

from tests.relay.house import House
from tests.support.ports import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries


@pytest.fixture
def house(make_app):
    port = free_port()
    server = TcpFakeServer(("127.0.0.1", port), server_type="redis")
    # Its threads stay in a blocking pop after its client has gone.
    server.daemon_threads, server.block_on_close = True, False
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    app = make_app("memory://", delayq_url=f"redis://127.0.0.1:{port}/0")
    made = House(app, "memory://")
    made.declare(Queue(made.queue))
    yield made
    made.close()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_task_is_relayed(house):
    house.start()
    start = house.delayq.counts().now_ms / 1000 + 0.2
    # In one call, so that the first is not due before the second is there.
    items = [((), {}, start + later, name) for later, name in ((0.2, "second"), (0, "first"))]
    house.delayq.schedule_many(house.task, items)
    arrived = [message.headers["id"] for message in house.take(count=2)]
    assert arrived == ["first", "second"]
    eventually(lambda: house.counts() == (0, 0, 0))
