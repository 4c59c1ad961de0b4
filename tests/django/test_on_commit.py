"""`delay_until_on_commit` and `delay_for_on_commit`, in a Django project with a real database."""

import socket

import pytest

from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.libraries

SETTINGS = """
DATABASES["archive"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": "archive.sqlite3"}
"""


@pytest.fixture(scope="module")
def project(new_project):
    return new_project(SETTINGS)


@pytest.fixture(scope="module")
def answers(project):
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        away = f"redis://127.0.0.1:{taken.getsockname()[1]}/0"
        return project.run(
            f"from tests.django import commits\nprint(json.dumps(commits.main({away!r})))"
        )


# The answers of `commits`.
ANSWERS = {
    "a task is scheduled at the commit by the id that the call returned": (
        "commits",
        [False, True, [42], "2100-01-01T00:00:00+00:00"],
    ),
    "nothing is scheduled when the transaction is rolled back": ("rolls_back", [False, 0, False]),
    "a task of a savepoint that is rolled back is not scheduled": (
        "savepoint_rolled_back",
        [True, False],
    ),
    "outside of a transaction it is scheduled at once": ("no_transaction", True),
    "a task whose time is past at the commit runs at once": ("past_at_the_commit", [1, True]),
    "no keyword of a task is taken for one of the method": ("keywords", [True, True]),
    "another database's transaction is named to on_commit itself": (
        "another_database",
        [[True, False], True],
    ),
    "celery's own method takes the options": ("with_options", [False, [42]]),
    "a cancel on commit is not done when the transaction is rolled back": (
        "recipe",
        [True, True, False],
    ),
    "a task that runs eagerly does so at the commit by that id": ("eager", [[], True]),
}


@pytest.mark.parametrize(("question", "answer"), ANSWERS.values(), ids=ANSWERS)
def test_the_task_of_a_call_on_commit_depends_on_its_transaction(answers, question, answer):
    assert answers[question] == answer


def test_a_delay_counts_from_the_commit(answers):
    assert 60 <= answers["counts_from_the_commit"] < 60 + PATIENCE


@pytest.mark.parametrize(
    ("what", "error", "says"),
    [
        ("wrong time", "InvalidDueTime", "'tomorrow' is not a due time"),
        ("wrong delay", "NotADueTime", "'soon' is not a due time"),
        ("a delay as a time", "InvalidDueTime", "60 is not a due time"),
        ("wrong arguments", "TypeError", "missing 1 required positional argument"),
        ("wrong_setting", "InvalidSetting", "delayq_url is 'http://here'"),
    ],
)
def test_a_wrong_call_raises_at_once_and_rolls_the_transaction_back(answers, what, error, says):
    kind, sentence, stored = answers[what]

    assert (kind, stored) == (error, False)
    assert says in sentence


def test_a_commit_while_redis_is_away_stores_the_data_and_raises_and_its_id_can_wait_later(answers):
    found = answers["redis_is_away"]

    assert (found["error"], found["stored"], found["waits"]) == ("StoreUnavailable", True, False)
    assert found["called"] == []  # by Django: callbacks registered later
    assert found["again"] == [True, "AlreadyScheduled"]


def test_every_task_that_has_celery_s_method_has_these(answers):
    both = [[[7], [7]], "TypeError"]
    of_a_class = [[[7], [7]], None]  # Celery checks only this much of its arguments
    assert answers["kinds"] == [both, both, both, of_a_class, False]


def test_a_process_that_dies_after_the_commit_has_scheduled_nothing(project):
    died = project.started("""
import os
delayq.select(all=True).cancel()
with transaction.atomic():
    Order.objects.create(pk=400)
    transaction.on_commit(lambda: os._exit(9))
    remind.delay_for_on_commit(60, 400)
""")
    found = project.run("""
print(json.dumps([Order.objects.filter(pk=400).exists(), delayq.counts().scheduled]))
""")

    assert died.returncode == 9
    assert found == [True, 0]


TEST_CASE = """
from django.test import TestCase
from orders.steps import place
from shop.celery import delayq


class Reminders(TestCase):
    def test_captured(self):
        with self.captureOnCommitCallbacks(execute=True):
            order = place()
        self.assertEqual(delayq.get(order.reminder).args, (order.pk,))
        delayq.cancel(order.reminder)

    def test_not_captured(self):
        self.assertIsNone(delayq.get(place().reminder))

    def test_captured_and_not_executed(self):
        with self.captureOnCommitCallbacks() as callbacks:
            order = place()
        self.assertIsNone(delayq.get(order.reminder))
        callbacks[0]()
        self.assertTrue(delayq.cancel(order.reminder))
"""


def test_a_test_case_schedules_where_it_captures_the_callbacks(project):
    (project.folder / "orders" / "tests.py").write_text(TEST_CASE)

    ran = project.started(
        "call = __import__('django.core.management').core.management\n"
        "call.call_command('test', 'orders')\n"
    )

    assert ran.returncode == 0, ran.stderr
    assert "Ran 3 tests" in ran.stderr
