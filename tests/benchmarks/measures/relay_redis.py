"""Hand-over to another Redis than the store's, beside a plain kombu publish loop."""

from tests.benchmarks.apps import QUEUE
from tests.benchmarks.children import Child
from tests.benchmarks.lab import Lab
from tests.benchmarks.measures.relay_rabbitmq import handover
from tests.benchmarks.roles import kombu_publisher
from tests.benchmarks.stats import Figures


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
