"""The doctor, on a store behind sentinels."""

from celery_delayq.contrib.care.doctor import AT_THE_STORE, Patient, examine


def lines_of(delayq):
    patient = Patient(delayq.services)
    try:
        return {line.name: line for one in AT_THE_STORE for line in one.lines(patient)}
    finally:
        patient.close()


def test_the_master_that_they_name_is_looked_at(group, make_delayq):
    found = lines_of(make_delayq(group, delayq_wait_replicas=(1, 1)))

    assert found["replication"].level == "ok"
    assert found["replication"].found.startswith("a master, with a replica that keeps up; ")
    assert (found["wait for replicas"].level, found["wait for replicas"].found) == (
        "ok",
        "delayq_wait_replicas asks for 1, and 1 is there",
    )
    assert all(f":{one.port}" in found["store"].found for one in group.sentinels)


def test_a_group_without_a_master_is_away(group, make_delayq):
    options = {**group.options, "master_name": "nobody"}
    delayq = make_delayq(group, broker_transport_options=options)

    line = next(examine(delayq.services))

    assert (line.name, line.level) == ("store", "error")
    assert "cannot be reached" in line.found
    assert "nobody" in line.found
    assert line.advice.endswith("; check the transport options too")
