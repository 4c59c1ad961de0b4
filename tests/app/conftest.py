"""An app with DelayQ on the suite's Redis; no worker runs in these tests."""

import base64
import contextlib
import json
import socket
import sys
import warnings

import pytest
from celery import Celery
from celery.canvas import Signature
from celery.signals import import_modules

from celery_delayq import DelayQ, signals
from celery_delayq.core import clock
from tests.app.bulk import plain_task
from tests.support.apps import let_go_of_results
from tests.support.network import QUICK, Listener, ReplySwallower
from tests.support.waiting import PATIENCE


@pytest.fixture(scope="session")
def redis_client(redis_server):
    return redis_server.client()


@pytest.fixture
def redis(redis_client):
    """The suite's Redis, empty."""
    redis_client.flushall()
    return redis_client


@pytest.fixture
def url(request, redis, redis_server):
    """The suite's Redis; through the proxy `between` if a test asks for that."""
    if "between" in request.fixturenames:
        return request.getfixturevalue("between").url()
    return redis_server.url()


@pytest.fixture
def delayq_app(make_app, limits):
    """Make an app with DelayQ: ``delayq_app(broker, backend, delayq_prefix="x")``."""
    made = []
    # A process that is starved for seconds still gets its answers.
    with contextlib.suppress(ImportError):  # the core's tests run without it
        limits(query_answer_s=PATIENCE)
    limits(answer_s=PATIENCE, reach_s=PATIENCE)

    def make(broker=None, backend=None, **conf):
        app = make_app(broker, backend, **{"delayq_timeout": PATIENCE, **conf})
        made.append(DelayQ(app))
        return app

    yield make
    for delayq in made:
        let_go_of_results(delayq.app)
        delayq.close()


@pytest.fixture
def app(delayq_app, url):
    """Broker and store are one Redis; no result backend."""
    return delayq_app(url)


@pytest.fixture
def app_with_results(delayq_app, redis_server, url):
    """Broker and store in database 0, results in 1."""
    with warnings.catch_warnings():
        # redis-py 8 deprecates it, and Celery's backend calls it.
        warnings.filterwarnings("ignore", "Call to deprecated setex", DeprecationWarning)
        yield delayq_app(url, redis_server.url(1))


@pytest.fixture
def delayq(app):
    return app.delayq


@pytest.fixture
def alive():
    """Let a scanner of an app be alive that does nothing.

    ``alive(app)`` returns its steps, one of each shard.
    """
    with contextlib.ExitStack() as stack:

        def begin(app):
            app.conf.delayq_safety_interval = 300  # it counts as alive for three times as long
            steps = [*map(contextlib.closing, app.delayq.services.steps_by_shard())]
            steps = [stack.enter_context(one) for one in steps]
            for one in steps:
                one.hand_over()
            return steps

        yield begin


@pytest.fixture
def found_by_workers(app):
    """Put a task of one argument into a module that only workers can import, or that fails."""
    modules = []

    def put(name, *, error=None, **options):
        def module(**_):
            if error is not None:
                raise error

            @app.task(name=name, **options)
            def task(x):
                return x

        modules.append(module)
        import_modules.connect(module, sender=app, weak=False)

    yield put
    for module in modules:
        import_modules.disconnect(module, sender=app)


@pytest.fixture
def add(app):
    @app.task(name="add")
    def add(x, y=0):
        return x + y

    return add


@pytest.fixture
def remind(app):
    return plain_task(app)


@pytest.fixture
def listen():
    """Connect a receiver for the length of this test: ``listen(signal, receiver)``."""
    connected = []

    def listen(signal, receiver):
        signal.connect(receiver, weak=False)
        connected.append((signal, receiver))

    yield listen
    for signal, receiver in connected:
        signal.disconnect(receiver)


@pytest.fixture
def made_by_celery():
    """The ids of a bulk's items that went through ``apply_async``.

    They are seen by a profiler, as a bulk goes another way only past a Celery that is as it was.
    """
    made = []

    def look(frame, event, _):
        if event == "call" and frame.f_code is Signature.apply_async.__code__:
            options = frame.f_locals["options"]
            if "task_id" in options:  # of the call, and not of the signature
                made.append(options["task_id"])

    sys.setprofile(look)
    yield made
    sys.setprofile(None)


@pytest.fixture
def hanging_up():
    with Listener() as server:
        yield server


@pytest.fixture
def swallowing(redis_server, redis):
    """Make a proxy that swallows replies: ``swallowing("schedule", times=2)``."""
    with contextlib.ExitStack() as stack:
        yield lambda mark, times=1: stack.enter_context(
            ReplySwallower(redis_server.port, mark, times)
        )


@pytest.fixture
def through(delayq_app):
    return lambda proxy, **conf: delayq_app(
        f"redis://127.0.0.1:{proxy.port}/0", task_publish_retry_policy=QUICK, **conf
    )


@pytest.fixture
def stranger(url):
    """An app in a process without a DelayQ."""
    with Celery("stranger", broker=url, set_as_current=False) as app:
        yield app


@pytest.fixture
def to_workers(app, redis):
    """The messages to workers, in order: call it after the calls in question."""
    workers = redis.pubsub()
    workers.psubscribe("*celery.pidbox*")
    assert workers.get_message(timeout=30)["type"] == "psubscribe"

    def told():
        app.control.broadcast("ping")  # marks the end of the messages
        heard = []
        while not heard or heard[-1][0] != "ping":
            body = json.loads(workers.get_message(timeout=30)["data"])["body"]
            command = json.loads(base64.b64decode(body))
            heard.append((command["method"], command["arguments"]))
        return heard[:-1]

    yield told
    workers.close()


@pytest.fixture(autouse=True)
def nobody_listens_afterwards():
    yield
    for name in signals.__all__:
        getattr(signals, name).receivers.clear()


@pytest.fixture
def passing(monkeypatch):
    """Let ten seconds pass with each reply that is lost: ``with passing(proxy):``."""

    @contextlib.contextmanager
    def pass_(proxy):
        now = clock.monotonic
        with monkeypatch.context() as patch:
            patch.setattr(clock, "monotonic", lambda: now() + 10 * proxy.swallowed)
            yield

    return pass_


@pytest.fixture
def watching(redis):
    """Watch an app's events as Flower does; the yielded function waits for so many of them."""

    @contextlib.contextmanager
    def watch(app):
        seen = []
        with contextlib.ExitStack() as stack:
            given = stack.enter_context(app.connection_for_read())
            receiver = app.events.Receiver(given, handlers={"*": seen.append})
            connection, *_ = stack.enter_context(receiver.consumer_context())

            def wait_for(count):
                while len(seen) < count:
                    connection.drain_events(timeout=30)
                with contextlib.suppress(socket.timeout):
                    connection.drain_events(timeout=0.1)  # none may come after
                assert len(seen) == count
                return seen

            while not redis.pubsub_numpat():
                with contextlib.suppress(socket.timeout):
                    connection.drain_events(timeout=0.01)
            yield wait_for

    return watch
