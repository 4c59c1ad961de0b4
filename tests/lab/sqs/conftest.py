"""./tests/run sqs runs these tests in an environment with moto; another run leaves them out."""

from functools import partial
from importlib.util import find_spec

import pytest

from tests.relay.conftest import make_house, patient
from tests.relay.house import new_name
from tests.worker.conftest import make_project, results_end_together, server

__all__ = ["make_house", "make_project", "patient", "results_end_together", "server"]

collect_ignore_glob = [] if find_spec("moto") else ["test_*.py"]

# A queue's name says which kind it is.
KINDS = {"standard": "", "fifo": ".fifo"}
OPTIONS = {"wait_time_seconds": 1, "polling_interval": 0.05}


@pytest.fixture(scope="session")
def sqs_server():
    """The imitation, of which each test uses queues of its own."""
    from tests.lab.sqs.server import SqsServer

    with SqsServer() as one:
        yield one


@pytest.fixture(params=KINDS)
def queue(request):
    """The name of a queue, of each kind in turn."""
    return new_name() + KINDS[request.param]


@pytest.fixture
def sqs(make_house, sqs_server, queue):
    """A house whose broker is SQS: ``sqs.take()`` returns the messages in its queue."""
    house = make_house(sqs_server.url(), task_default_queue=queue, broker_transport_options=OPTIONS)
    house.take = partial(sqs_server.take, queue)
    return house


@pytest.fixture
def on_sqs(make_project, sqs_server, server, queue):
    """Make a project whose broker is SQS: ``on_sqs(delayq_adopt_after=60)``."""

    def make(options=OPTIONS, **conf):
        made = {
            "broker_url": sqs_server.url(),
            "broker_transport_options": options,
            "delayq_url": server.url(),
            "task_default_queue": queue,
            # Celery has none on SQS.
            "worker_enable_remote_control": False,
        }
        project = make_project(**{**made, **conf})
        project.queue = queue
        return project

    return make
