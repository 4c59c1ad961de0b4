import pytest

from tests.support.apps import celery_state_kept
from tests.worker.conftest import results_end_together, server
from tests.worker.project import Project

__all__ = ["results_end_together", "server"]


@pytest.fixture
def make_project(server):
    """Make a project for this test alone; its workers come from `start_worker`."""
    made = []

    def make(on=server, **conf):
        # A scanner that cannot be woken looks that often.
        made.append(Project(on, **{"delayq_safety_interval": 1.0, **conf}))
        return made[-1]

    with celery_state_kept():
        yield make
        for project in made:
            project.close()
