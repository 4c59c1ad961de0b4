"""The example of a reconcile in a Django project: rows of a model, and what marks them as done."""

import pytest

from tests.readme.document import page

pytestmark = pytest.mark.libraries

SETTINGS = """
import importlib.util

USE_TZ = True  # the default of Django 5
if importlib.util.find_spec("reminders"):
    INSTALLED_APPS = ["orders", "reminders"]
"""
RUN = """
from datetime import datetime, timezone
from reminders.models import Reminder
from reminders.tasks import agree, send

def waiting():
    return {task.key: task.due.isoformat() for task in delayq.select(tag="reminder")}

day = datetime(2100, 1, 1, tzinfo=timezone.utc)
rows = [Reminder.objects.create(remind_at=day) for _ in range(4)]
found = {"created": agree(), "rules": [rule.name for rule in delayq.rules()]}
Reminder.objects.filter(pk=1).update(done=True)
Reminder.objects.filter(pk=2).update(remind_at=day.replace(hour=9))
rows[2].delete()
found["changed"], found["waiting"] = agree(), waiting()
delayq.run_now(key="reminder:4")
delayq.hand_over()
found["delivered"] = agree()
send(4)
found["marked"] = agree()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def project(new_project):
    project = new_project(SETTINGS)
    (project.folder / "reminders").mkdir()
    (project.folder / "reminders" / "__init__.py").touch()
    for block in page("guide/reconcile").written_in("python"):
        if block.text.startswith("# reminders/"):
            (project.folder / block.text.split()[1]).write_text(block.text)
    project.migrate("reminders")
    return project


def test_a_model_s_rows_and_the_tasks_agree_each_hour(project):
    assert project.run(RUN) == {
        "created": {"scheduled": 4},
        "rules": ["agree"],
        "changed": {"changed": 1, "cancelled": 2, "unchanged": 1},
        "waiting": {
            "reminder:2": "2100-01-01T09:00:00+00:00",
            "reminder:4": "2100-01-01T00:00:00+00:00",
        },
        "delivered": {"unchanged": 1, "was_delivered": 1},
        "marked": {"unchanged": 1},
    }
