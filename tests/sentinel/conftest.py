"""Groups with three sentinels, and apps whose tasks wait there.

A group is up within a second or two, so a test that breaks one has it alone.
"""

import contextlib

import pytest

from celery_delayq import DelayQ
from tests.sentinel.faults import CALM
from tests.sentinel.work import note, settings
from tests.support.certificates import program_with_tls
from tests.support.sentinels import SentinelGroup
from tests.support.waiting import PATIENCE


def calm(group):
    """Let its sentinels elect no other master before a test breaks something."""
    group.wait_with(CALM)
    return group


@pytest.fixture(scope="package")
def package_group():
    """Start a group for all of these tests; no test breaks it."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: calm(stack.enter_context(SentinelGroup(replicas=1, **options)))


@pytest.fixture(scope="package")
def standing_group(package_group):
    return package_group()


@pytest.fixture
def group(standing_group):
    """The group that no test breaks, empty."""
    standing_group.master.empty()
    return standing_group


@pytest.fixture
def start_group():
    """Start a group for this test alone: ``start_group(replicas=1)``."""
    with contextlib.ExitStack() as stack:

        def start(*config, replicas=1, **options):
            return calm(stack.enter_context(SentinelGroup(*config, replicas=replicas, **options)))

        yield start


@pytest.fixture
def start_tls_group(start_group, certificates):
    """Start a group that speaks only TLS, for this test alone."""

    def start():
        with program_with_tls() as binary:
            return start_group(binary=binary, tls=certificates)

    return start


@pytest.fixture
def make_delayq(make_app):
    """Make a DelayQ with a group as broker and store: ``make_delayq(group)``."""
    made = []

    def make(group=None, **conf):
        conf = {**settings(group), "delayq_timeout": PATIENCE, **conf}
        made.append(DelayQ(make_app(conf.pop("broker_url"), **conf)))
        made[-1].note = made[-1].app.task(name="note", shared=False)(note)
        return made[-1]

    yield make
    for delayq in made:
        delayq.close()


@pytest.fixture
def start_scanner():
    """Start a scanner in a thread of this process; return after its first scan."""
    started = []

    def start(delayq):
        scanner = delayq.scanner()
        started.append(scanner)
        scanner.start()
        scanner.wait_for_first_scan(PATIENCE)
        return scanner

    yield start
    for scanner in started:
        scanner.stop()
