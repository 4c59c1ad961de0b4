"""The output of the commands for a group, healthy or broken."""

import pytest

from tests.cli.conftest import project, run
from tests.sentinel.faults import kill
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


def test_list_and_cancel_work_as_on_any_store(app, run):
    app.delayq.note.apply_async(task_id="a", delayq_at=FAR)
    app.delayq.note.apply_async(task_id="b", delayq_at=FAR)

    assert run("list", "--ids").output.split() == ["a", "b"]
    assert run("cancel", "a").output == "task a cancelled\n"
    assert run("list", "--ids").output.split() == ["b"]


def test_health_is_well_while_somebody_scans(app, run, start_scanner):
    start_scanner(app.delayq)
    eventually(lambda: app.delayq.counts().scanners)

    result = run("health")

    assert (result.output, result.exit_code) == ("healthy\n", 0)


def test_health_says_in_time_that_there_is_no_master(start_group, make_delayq, run):
    group = start_group()
    delayq = make_delayq(group)
    for server in (*group.nodes, *group.sentinels):
        server.kill()

    result = run("health", app=delayq.app)

    assert result.exit_code == 1
    assert NAME in result.output
    assert "Traceback" not in result.output


def test_commands_go_to_the_new_master(start_group, make_delayq, run):
    group = start_group()
    make_delayq(group).note.apply_async(task_id="a", delayq_at=FAR)

    kill(group)

    result = run("list", "--ids", app=make_delayq(group).app)
    assert result.output.split() == ["a"]
