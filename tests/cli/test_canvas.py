"""The commands on scheduled canvases."""

from celery import chain, group

from tests.app.support import FAR


def test_a_canvas_is_listed_as_what_it_is_and_its_arguments_are_not(app, said):
    secret = app.signature("shop.add", args=("a secret",)).set(argsrepr="***")
    result = app.delayq.schedule(chain(secret, app.signature("shop.mail")), at=FAR)

    rows = said("list")
    assert rows[1].endswith("  chain(shop.add, ...)        celery  scheduled")
    shown = "\n".join((*said("show", result.id), *said("list", "--json"), *rows))
    assert "secret" not in shown


def test_the_canvas_of_a_group_is_one_task_to_the_commands(app, said):
    @app.task(name="t")
    def task(x):
        return x

    result = group(task.s(1), task.s(2)).delay_until(FAR)

    assert said("cancel", result.id) == [f"task {result.id} cancelled"]
