"""The commands and the doctor beside a group, healthy or broken."""

import pytest

from celery_delayq.contrib.care.doctor import AT_THE_STORE, Patient, examine
from tests.cli.conftest import project, run
from tests.sentinel.work import FAR
from tests.support.sentinels import NAME
from tests.support.waiting import eventually

__all__ = ["project", "run"]


@pytest.fixture
def app(group, make_delayq):
    return make_delayq(group).app


def where(group) -> str:
    hosts = ";".join(f"127.0.0.1:{one.port}" for one in group.sentinels)
    return f"sentinel://{hosts}/0 ({NAME})"


def test_status_names_the_sentinels_and_the_master_s_name(app, run, group):
    app.delayq.note.apply_async(delayq_at=FAR)

    result = run("status")

    lines = result.output.splitlines()
    assert lines[0] == f"delayq  {where(group)}  prefix delayq  direct"
    assert any(line.startswith("waiting 1 ") for line in lines)


def test_health_says_in_time_that_there_is_no_master(start_group, make_delayq, run):
    group = start_group()
    delayq = make_delayq(group)
    for server in (*group.nodes, *group.sentinels):
        server.kill()

    result = run("health", app=delayq.app)

    assert result.exit_code == 1
    assert NAME in result.output
    assert "Traceback" not in result.output


# The doctor.


def lines_of(delayq):
    patient = Patient(delayq.services)
    try:
        return {line.name: line for one in AT_THE_STORE for line in one.lines(patient)}
    finally:
        patient.close()


def test_the_master_that_they_name_is_looked_at(group, make_delayq):
    delayq = make_delayq(group, delayq_wait_replicas=(1, 1))

    # On a busy machine the replica may be late.
    found = eventually(
        lambda: lines if (lines := lines_of(delayq))["wait for replicas"].level == "ok" else None
    )

    assert found["replication"].level == "ok"
    assert found["replication"].found.startswith("a master, with a replica that keeps up; ")
    said = "delayq_wait_replicas asks for 1, and 1 is there"
    assert found["wait for replicas"].found == said
    assert all(f":{one.port}" in found["store"].found for one in group.sentinels)


def test_a_group_without_a_master_is_away(group, make_delayq):
    options = {**group.options, "master_name": "nobody"}
    delayq = make_delayq(group, broker_transport_options=options)

    line = next(examine(delayq.services))

    assert (line.name, line.level) == ("store", "error")
    assert "cannot be reached" in line.found
    assert "nobody" in line.found
    assert line.advice.endswith("; check the transport options too")
