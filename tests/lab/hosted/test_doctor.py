"""The doctor on a hosted service that lacks, or forbids, commands that it sends."""

import pytest

from celery_delayq.contrib.care.doctor import AT_THE_STORE, Patient
from tests.lab.hosted.servers import CELERYS, SPARE, HostedServer

pytestmark = pytest.mark.libraries

UNTOLD = {
    "replication": "whether it has replicas is unknown: the store's Redis does not report it to "
    "this user",
    "eviction": "its maxmemory-policy is unknown: the store's Redis does not report it to this "
    "user",
    "persistence": (
        "whether a restart loses waiting tasks is unknown: the store's Redis does not report it "
        "to this user"
    ),
    "memory": "how much memory is left is unknown: the store's Redis does not report it to this "
    "user",
}


@pytest.fixture
def looked(make_project, server):
    """The doctor's findings about the store at a URL; its broker is another Redis."""

    def looked(url):
        project = make_project(server, delayq_url=url)
        patient = Patient(project.delayq.services)
        try:
            return [line for one in AT_THE_STORE for line in one.lines(patient)]
        finally:
            patient.close()

    return looked


def test_a_service_that_knows_none_of_the_commands_has_a_warning_for_each(looked):
    with HostedServer(*SPARE, *CELERYS) as store:
        found = looked(store.url())

    lines = {line.name: line for line in found}
    assert {name: lines[name].found for name in UNTOLD} == UNTOLD
    assert {lines[name].level for name in UNTOLD} == {"warning"}
    assert lines["store"].found.startswith("a Redis of unknown version at ")
    assert lines["clock"].level == "ok"
    assert lines["rights"].level == "ok"
    assert lines["rights"].found.startswith("unknown: this needs Redis 7 or Valkey, ")
    assert [line.name for line in found if line.level == "error"] == ["scanners"]
