"""Django's Tasks on Celery, by each package that has a backend for them, with `run_after` captured.

The settings are those of the page `guide/django`.
"""

from importlib.util import find_spec

import pytest

from tests.readme.document import page
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries

PAGE = page("guide/django")
CELERY, FENNEL, FENNEL_FILES = COLUMNS = (
    "django-tasks-celery",
    "django-tasks-fennel",
    "django-tasks-fennel, results in files",
)
# What Django's `get_result` says of a task, by column: its status, or the error that it raises.
SAYS = {
    "waiting, or in its queue": ("READY", "TaskResultDoesNotExist", "READY"),
    "waiting, asked by its task": ("AttributeError", "TaskResultDoesNotExist", "READY"),
    "running": ("RUNNING",) * 3,
    "done": ("SUCCESSFUL",) * 3,
    "failed": ("FAILED",) * 3,
    "cancelled": ("FAILED",) * 3,
    "dead": ("READY", "TaskResultDoesNotExist", "READY"),
}

MORE_TASKS = """
import os
import time
from pathlib import Path

import redis
from django.tasks import task

from . import thanks  # noqa: F401

noted = Path(__file__).with_name("noted")
store = redis.Redis.from_url(os.environ["CELERY_BROKER_URL"])


@task
def note(name):
    with noted.open("a") as file:
        file.write(f"{name}\\n")
    return [name, time.time()]


@task
def fail():
    raise LookupError("there is no such order")


@task
def hold():
    print("an order is held")
    store.blpop("let go", 100)
"""

QUESTIONS = """
import time
from datetime import timedelta

from django.tasks import default_task_backend
from django.tasks.exceptions import TaskResultDoesNotExist
from django.utils import timezone
from orders.tasks import fail, hold, note, store
from orders.thanks import thank, thank_later
from tests.app.support import lists
from tests.support.places import take


def later(task, *args):
    return task.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(*args).id


def said(task_id, by=default_task_backend):
    try:
        return by.get_result(task_id).status.value
    except (AttributeError, TaskResultDoesNotExist) as error:
        return type(error).__name__


def answer(**found):
    print(json.dumps(found))


"""


class TasksProject:
    """The recipe's project, and what Django says of tasks in its column."""

    def __init__(self, project, column):
        self.env, self._run = project.env, project.run
        self.noted = project.folder / "orders" / "noted"
        self.column = column
        self.says = {what: said[COLUMNS.index(column)] for what, said in SAYS.items()}

    def ask(self, script):
        return self._run(QUESTIONS + script)

    def said(self, task_id):
        return self.ask(f"print(json.dumps(said({task_id!r})))")

    def result(self, task_id):
        """The task, its return value and its errors, of a result that is finished."""
        return self.ask(f"""
result = default_task_backend.get_result({task_id!r})
value = result.return_value if result.status == "SUCCESSFUL" else None
errors = [error.exception_class_path for error in result.errors]
answer(task=result.task and result.task.name, value=value, errors=errors)
""")

    def wait_for(self, row, task_id):
        eventually(lambda: self.said(task_id) == self.says[row], message=f"{task_id} is {row}")

    def run_another(self):
        """Wait for the end of a task that is behind all others in the queue."""
        self.wait_for("done", self.ask("print(json.dumps(note.enqueue('another').id))"))


@pytest.fixture(scope="module", params=COLUMNS)
def made(request, new_project):
    package = request.param.split(",")[0]
    # Looked for, and not imported: django-tasks-fennel changes Django for the whole process.
    for module in ("django.tasks", package.replace("-", "_")):
        if find_spec(module) is None:
            pytest.skip(f"there is no {module}")
    shown = PAGE.written_in("python", "Django's Tasks")
    blocks = {block.text.splitlines()[0].partition(",")[0]: block.text for block in shown}
    [settings] = [block.text for block in shown if package in block.text.splitlines()[0]]
    project = new_project(settings)
    (project.folder / "orders" / "thanks.py").write_text(blocks["# orders/thanks.py"])
    with (project.folder / "orders" / "tasks.py").open("a") as file:
        file.write(MORE_TASKS)
    (project.folder / "results").mkdir()
    project.env["CELERY_RESULT_BACKEND"] = (
        f"file://{project.folder}/results"
        if request.param == FENNEL_FILES
        else project.env["CELERY_BROKER_URL"].removesuffix("0") + "1"
    )
    return TasksProject(project, request.param)


@pytest.fixture
def project(made, redis_server):
    redis_server.empty()
    made.noted.unlink(missing_ok=True)
    return made


def test_a_task_with_run_after_waits_in_the_store_and_in_no_queue(project):
    found = project.ask("""
before = timezone.now()
task_id = thank_later(42)
task = delayq.get(task_id)
answer(
    args=task.args,
    state=app.AsyncResult(task_id).state,
    in_an_hour=abs((task.due - before).total_seconds() - 3600) < 600,
    queues=len(lists(store)),
    said=said(task_id),
    said_by_task=said(task_id, by=thank),
)
""")

    assert found == {
        "args": [42],
        "state": "SCHEDULED",
        "in_an_hour": True,
        "queues": 0,
        "said": project.says["waiting, or in its queue"],
        "said_by_task": project.says["waiting, asked by its task"],
    }


def test_a_task_without_run_after_goes_to_its_queue_at_once_and_runs(project, start_worker):
    found = project.ask("""
task_id = thank.enqueue(42).id
[messages] = lists(store).values()
answer(id=task_id, waits=delayq.get(task_id) is not None, messages=len(messages))
""")
    start_worker("shop", "-c", "1", env=project.env)

    assert (found["waits"], found["messages"]) == (False, 1)
    project.wait_for("done", found["id"])
    assert project.result(found["id"]) == {
        "task": "thank",
        "value": "thanks for order 42",
        "errors": [],
    }


def test_a_cancelled_task_never_runs_and_failed_for_django(project, start_worker):
    found = project.ask("""
task_id = later(note, "cancelled")
outcome = delayq.cancel(task_id)
waits, state = delayq.get(task_id) is not None, app.AsyncResult(task_id).state
answer(id=task_id, outcome=outcome, waits=waits, state=state)
""")
    said_without_a_worker = project.said(found["id"])
    start_worker("shop", "-c", "1", env=project.env)
    project.run_another()

    assert (found["outcome"], found["waits"], found["state"]) == ("done", False, "REVOKED")
    assert said_without_a_worker == project.said(found["id"]) == project.says["cancelled"]
    revoked = ["celery.exceptions.TaskRevokedError"]
    assert project.result(found["id"])["errors"] == (revoked if project.column == CELERY else [])
    assert project.noted.read_text().split() == ["another"]


def test_a_rescheduled_task_runs_once_at_its_new_time(project, start_worker):
    start_worker("shop", "-c", "1", env=project.env)
    found = project.ask("""
task_id = later(note, "moved")
asked = time.time()
answer(id=task_id, asked=asked, outcome=delayq.reschedule(task_id, after=2))
""")

    assert found["outcome"] == "done"
    project.wait_for("done", found["id"])
    project.run_another()
    name, ran = project.result(found["id"])["value"]
    assert name == "moved"
    # The store counts in milliseconds.
    assert found["asked"] + 2 - 0.001 <= ran < found["asked"] + 3600
    assert project.noted.read_text().split() == ["moved", "another"]


def test_a_task_that_raises_failed_with_its_error(project, start_worker):
    start_worker("shop", "-c", "1", env=project.env)

    task_id = project.ask("print(json.dumps(fail.enqueue().id))")

    project.wait_for("failed", task_id)
    assert project.result(task_id)["errors"] == ["builtins.LookupError"]


def test_a_task_in_its_queue_is_as_a_waiting_one_until_it_runs(project, start_worker, redis_server):
    task_id = project.ask("print(json.dumps(hold.enqueue().id))")
    said_in_the_queue = project.said(task_id)
    start_worker("shop", "-c", "1", env=project.env).wait_log("an order is held")
    said_in_the_worker = project.said(task_id)
    redis_server.client().lpush("let go", 1)

    assert said_in_the_queue == project.says["waiting, or in its queue"]
    assert said_in_the_worker == project.says["running"]
    project.wait_for("done", task_id)


def test_a_dead_task_is_as_a_waiting_one_until_it_is_removed(project):
    found = project.ask("""
note.enqueue("to see the name of the queue")
[queue] = lists(store)
store.set(queue, "no list")
task_id = later(note, "dead")
delayq.run_now(task_id)
take(delayq, "dead", task_id)
state, dead = app.AsyncResult(task_id).state, said(task_id)
answer(state=state, dead=dead, outcome=delayq.remove(task_id), removed=said(task_id))
""")

    assert found == {
        "state": "DEAD",
        "dead": project.says["dead"],
        "outcome": "done",
        "removed": project.says["cancelled"],
    }
