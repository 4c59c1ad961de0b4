"""A worker runs the edited version of a task."""

import pytest

pytestmark = pytest.mark.libraries


@pytest.fixture(params=["crew", "rabbit"])
def project(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def rabbit(standing, server, rabbitmq_server):
    return standing(
        *("-P", "prefork", "-c", "2"), broker_url=rabbitmq_server.url, delayq_url=server.url()
    )


def test_a_worker_sees_the_edited_arguments(project):
    result = project.tasks["add"].delay_for(3600, 1, 2)

    assert result.edit(args=(5,), kwargs={"y": 6})
    assert result.reschedule(after=0)

    assert result.get(timeout=30) == 11


def test_an_edited_expiry_ends_a_task(project):
    result = project.tasks["add"].delay_for(3600, 1, 2)

    assert result.edit(expires=-5)
    assert result.reschedule(after=0)

    with pytest.raises(Exception, match="expired"):
        result.get(timeout=30)
    assert project.runs(result) == []
