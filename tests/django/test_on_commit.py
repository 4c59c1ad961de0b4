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


def test_a_task_is_scheduled_at_the_commit_by_the_id_that_the_call_returned(answers):
    assert answers["commits"] == [False, True, [42], "2100-01-01T00:00:00+00:00"]


def test_nothing_is_scheduled_when_the_transaction_is_rolled_back(answers):
    assert answers["rolls_back"] == [False, 0, False]


def test_a_delay_counts_from_the_commit(answers):
    assert 60 <= answers["counts_from_the_commit"] < 60 + PATIENCE


def test_a_task_of_a_savepoint_that_is_rolled_back_is_not_scheduled(answers):
    assert answers["savepoint_rolled_back"] == [True, False]


def test_of_nested_transactions_the_outermost_one_counts(answers):
    assert answers["nested"] == [False, True]


def test_outside_of_a_transaction_it_is_scheduled_at_once(answers):
    assert answers["no_transaction"] is True


def test_a_task_whose_time_is_past_at_the_commit_runs_at_once(answers):
    assert answers["past_at_the_commit"] == [1, True]


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


def test_a_commit_while_redis_is_away_stores_the_data_and_raises_an_error(answers):
    found = answers["redis_is_away"]

    assert (found["error"], found["stored"], found["waits"]) == ("StoreUnavailable", True, False)
    assert found["called"] == []  # by Django: callbacks registered later


def test_it_can_be_scheduled_again_by_its_id_once(answers):
    assert answers["redis_is_away"]["again"] == [True, "AlreadyScheduled"]


def test_django_s_robust_lets_the_others_be_called(answers):
    assert answers["robust"] == ["later"]


def test_no_keyword_of_a_task_is_taken_for_one_of_the_method(answers):
    assert answers["keywords"] == [True, True]


def test_another_database_s_transaction_is_named_to_on_commit_itself(answers):
    assert answers["another_database"] == [[True, False], True]


def test_celery_s_own_method_takes_the_options(answers):
    assert answers["with_options"] == [False, [42]]


def test_a_cancel_on_commit_is_not_done_when_the_transaction_is_rolled_back(answers):
    assert answers["recipe"] == [True, True, False]


def test_every_task_that_has_celery_s_method_has_these(answers):
    both = [[[7], [7]], "TypeError"]
    of_a_class = [[[7], [7]], None]  # Celery checks only this much of its arguments
    assert answers["kinds"] == [both, both, both, of_a_class, False]


def test_a_task_that_runs_eagerly_does_so_at_the_commit_by_that_id(answers):
    assert answers["eager"] == [[], True]


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
