"""A Django project: settings by namespace, Django's times and lazy values, forks, and a worker."""

import json

import pytest

from tests.support.forked import run_forked

pytestmark = pytest.mark.libraries

SETTINGS = """
import os

USE_TZ = os.environ.get("USE_TZ") == "yes"
TIME_ZONE = "Asia/Tokyo"
USE_I18N = True
CELERY_DELAYQ_HISTORY = 10
for name in ("TIMEZONE", "DELAYQ_PREFIX"):
    name = f"CELERY_{name}"
    if name in os.environ:
        globals()[name] = os.environ[name]
"""


@pytest.fixture(scope="module")
def project(new_project):
    return new_project(SETTINGS)


TIMES = """
from datetime import datetime
from django.utils import timezone

tokyo = datetime(2100, 1, 1, 9)
given = [tokyo, timezone.make_aware(tokyo), "2100-01-01T09:00:00"]
now = timezone.now()
print(json.dumps({
    "due": [delayq.get(remind.delay_until(one, 1).id).due.isoformat() for one in given],
    "on commit": delayq.get(remind.delay_until_on_commit(tokyo, 1)).due.isoformat(),
    "now is late by": (remind.delay_until(now, 1).due - timezone.make_aware(now)).total_seconds()
    if timezone.is_naive(now)
    else (remind.delay_until(now, 1).due - now).total_seconds(),
}))
"""


@pytest.mark.parametrize("use_tz", ["yes", "no"])
def test_a_naive_time_is_in_django_s_time_zone(project, use_tz):
    found = project.run(TIMES, USE_TZ=use_tz)

    assert found["due"] == ["2100-01-01T00:00:00+00:00"] * 3
    assert found["on commit"] == "2100-01-01T00:00:00+00:00"
    # Due in the current millisecond, or the next one.
    assert abs(found["now is late by"]) < 0.001


def test_celery_s_own_time_zone_goes_before_django_s(project):
    found = project.run(TIMES, USE_TZ="yes", CELERY_TIMEZONE="UTC")

    assert found["due"] == [
        "2100-01-01T09:00:00+00:00",
        "2100-01-01T00:00:00+00:00",
        "2100-01-01T09:00:00+00:00",
    ]


LAZY = """
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy
from tests.django.conftest import error_of

word = gettext_lazy("yes")
lazy = SimpleLazyObject(lambda: "id-1")
remind.s(1).set(task_id="id-1").delay_for(60)
delayq.schedule(remind.s(2), after=60, key=lazy, tags=[lazy])
print(json.dumps({
    "argument": delayq.get(remind.delay_for(60, word).id).args,
    "lazy id": [delayq.get(lazy).args, bool(delayq.reschedule(lazy, after=90))],
    "lazy key": [delayq.get(key=lazy).args, delayq.select(tag=lazy).count()],
    "cancelled": [bool(delayq.cancel(lazy)), bool(delayq.cancel(key=lazy))],
    "no id": error_of(delayq.get, word)[0],
    "no argument": [
        error_of(call, SimpleLazyObject(lambda: 1))[0]
        for call in (remind.delay, lambda number: remind.delay_for(60, number))
    ],
}))
"""


def test_lazy_values_of_django_s_are_taken_where_celery_takes_them_and_as_ids(project):
    found = project.run(LAZY)

    assert found["argument"] == ["yes"]
    assert found["lazy id"] == [[1], True]
    assert found["lazy key"] == [[2], 1]
    assert found["cancelled"] == [True, True]
    assert found["no id"] == "InvalidOption"
    assert found["no argument"] == ["EncodeError", "EncodeError"]  # as in Celery


# A server that loads the project before it forks: each child reads over a connection.


MORE_TASKS = """

@shared_task
def place_one():
    from .steps import place

    place()
"""


def test_a_worker_of_the_project_runs_the_due_reminders_of_unpaid_orders(new_project, start_worker):
    project = new_project()
    with (project.folder / "orders" / "tasks.py").open("a") as file:
        file.write(MORE_TASKS)
    worker = start_worker("shop", "-c", "1", env=project.env)

    asked = project.run("""
from orders.steps import pay, place
from orders.tasks import place_one

paid, left, open_ = place(), place(), place()
pay(paid)
delayq.select(all=True).run_now()
place_one.delay()
print(json.dumps([paid.pk, left.pk, open_.pk]))
""")

    assert asked == [1, 2, 3]
    worker.wait_log("order 2 is not paid")
    worker.wait_log("order 3 is not paid")
    placed = "print(json.dumps(Order.objects.filter(pk=4).exclude(reminder='').exists()))"
    worker.wait_log("orders.tasks.place_one.* succeeded")
    assert project.run(placed) is True
    waits = "order = Order.objects.get(pk=4)\nprint(json.dumps(delayq.get(order.reminder).args))"
    assert project.run(waits) == [4]
    assert not any("order 1 is not paid" in line for line in worker.lines)


def test_history_names_tasks_that_are_autodiscovered(project):
    env = {"CELERY_DELAYQ_PREFIX": "history"}
    project.run("remind.delay_until(4_000_000_000, 1)\nprint(json.dumps(1))", **env)

    told = run_forked(
        *("-m", "celery", "-A", "shop", "delayq", "history", "--json"),
        cwd=project.folder,
        env={**project.env, **env},
    )

    assert [json.loads(line)["task"] for line in told.stdout.splitlines()] == [
        "orders.tasks.remind"
    ]


# What `orders/apps.py` connects is there once Django is set up.
RECEIVER = """
from celery_delayq.signals import task_cancelled
from django.apps import AppConfig


def note(task_id, **_):
    from .models import Order

    Order.objects.filter(reminder=task_id).update(reminder="revoked")


class Orders(AppConfig):
    name = "orders"

    def ready(self):
        task_cancelled.connect(note, weak=False)
"""


CANCELLED = """
order = Order.objects.create(reminder=remind.delay_for(3600, 1).id)
print(json.dumps([order.pk, order.reminder]))
"""


def test_receivers_of_django_s_apps_hear_of_what_a_command_cancels(new_project):
    project = new_project()
    (project.folder / "orders" / "apps.py").write_text(RECEIVER)
    pk, task_id = project.run(CANCELLED)

    ran = run_forked(
        *("-m", "celery", "-A", "shop", "delayq", "cancel", task_id),
        cwd=project.folder,
        env=project.env,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert project.run(f"print(json.dumps(Order.objects.get(pk={pk}).reminder))") == "revoked"
