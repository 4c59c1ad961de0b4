"""Hand-over to another Redis than the store's, beside a plain kombu publish loop."""

from tests.lab.benchmarks.apps import QUEUE
from tests.lab.benchmarks.children import Child
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.measures.relay_rabbitmq import handover
from tests.lab.benchmarks.roles import kombu_publisher
from tests.lab.benchmarks.stats import Figures


def measure(lab: Lab) -> Figures:
    """50,000 due at once, one scanner; the list there is counted afterwards."""
    count = lab.scaled(50_000, 5000)
    with lab.another_server() as other:
        figures = handover(lab, other.url(), count)
        assert other.client().llen(QUEUE) == count
        some = count // 5
        with Child(kombu_publisher, other.url(), some, {}) as publisher:
            plain = some / publisher.ask("go")
    return figures | {"kombu_rate": plain}
