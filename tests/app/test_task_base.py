"""`DelayQTask`: a base that shows type checkers the methods that every task has anyway."""

import pytest
from celery.app.task import Task

from celery_delayq import DelayQ, DelayQTask
from celery_delayq.errors import NoDelayQ
from tests.app.support import FAR

pytestmark = [pytest.mark.core, pytest.mark.libraries]


@pytest.mark.parametrize("name", ["delay_until", "delay_for"])
def test_its_methods_are_those_of_every_task(app, name):
    assert vars(Task)[name] is vars(DelayQTask)[name]


@pytest.mark.parametrize("base", [DelayQTask, "celery_delayq:DelayQTask"], ids=["class", "name"])
def test_it_is_the_base_of_an_app_that_names_it(make_app, url, base):
    app = make_app(url)
    app.task_cls = base
    delayq = DelayQ(app)

    @app.task(name="t")
    def task(number):
        pass

    result = task.delay_until(FAR, 1)

    assert isinstance(task, DelayQTask)
    assert delayq.get(result.id).args == (1,)
    delayq.close()


def test_a_task_class_names_its_arguments_and_what_it_returns(app):
    class Remind(DelayQTask[[int], str]):
        name = "remind"

        def run(self, order):
            return f"order {order}"

    task = app.register_task(Remind())

    assert app.delayq.get(task.delay_until(FAR, 42).id).args == (42,)
    assert task(42) == "order 42"


def test_without_a_delayq_its_methods_say_so(make_app):
    app = make_app()
    app.task_cls = DelayQTask

    @app.task(name="t")
    def task():
        pass

    with pytest.raises(NoDelayQ):
        task.delay_for(60)
