"""The recipe of a rule for each row of a model: set on commit, changed and removed with the row."""

import pytest

from tests.readme.document import page

SETTINGS = """
import importlib.util

if importlib.util.find_spec("digests"):
    INSTALLED_APPS = ["orders", "digests"]
"""

ROWS = """
from celery_delayq.contrib.rules import beside_scanner
from digests.models import Digest

def seen():
    return {rule.name: [rule.schedule, rule.tz] for rule in delayq.rules()}

found = {}
with transaction.atomic():
    row = Digest.objects.create(zone="Asia/Tokyo")
    found["before the commit"] = seen()
found["created"] = seen()
row.fields = "30 6 * * 1"
row.save()
found["changed"] = seen()
try:
    with transaction.atomic():
        row.fields = "0 0 * * *"
        row.save()
        raise KeyError
except KeyError:
    found["rolled back"] = seen()
row.refresh_from_db()
row.is_on = False
row.save()
found["off"] = seen()
row.is_on = True
row.save()
found["on"] = seen()
beside_scanner(app).write()
found["waits"] = [[task.task, list(task.args)] for task in delayq.tasks()]
row.delete()
found["deleted"] = seen()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def project(new_project):
    project = new_project(SETTINGS)
    [block] = [
        block
        for block in page("guide/django").written_in("python")
        if block.text.startswith("# digests/models.py")
    ]
    (project.folder / "digests").mkdir()
    (project.folder / "digests" / "__init__.py").touch()
    (project.folder / "digests" / "models.py").write_text(block.text)
    project.migrate("digests")
    return project


def test_the_rule_is_as_the_row_once_that_is_committed(project):
    found = project.run(ROWS)
    monday = {"digest:1": ["30 6 * * 1", "Asia/Tokyo"]}
    assert found["before the commit"] == {}
    assert found["created"] == {"digest:1": ["0 9 * * *", "Asia/Tokyo"]}
    assert found["changed"] == found["rolled back"] == found["on"] == monday
    assert found["off"] == found["deleted"] == {}
    assert found["waits"] == [["orders.tasks.remind", [1]]]
