"""The commands on scheduled canvases."""

import json

from celery import chain, group

from tests.app.support import FAR


def test_a_canvas_is_listed_as_what_it_is_and_its_arguments_are_not(app, printed):
    secret = app.signature("shop.add", args=("a secret",)).set(argsrepr="***")
    result = app.delayq.schedule(chain(secret, app.signature("shop.mail")), at=FAR)

    _, row = printed("list")
    [line] = printed("list", "--json")
    facts = json.loads(line)
    assert row.endswith("  chain(shop.add, ...)        celery  scheduled")
    assert (facts["args"], facts["kwargs"]) == (None, None)
    assert facts["argsrepr"].startswith("chain(shop.add")
    assert "secret" not in "\n".join([*printed("show", result.id), line, row])


def test_the_canvas_of_a_group_is_one_task_to_the_commands(app, said):
    task = app.signature("t")

    result = group(task, task).delay_until(FAR)

    assert said("cancel", result.id) == [f"task {result.id} cancelled"]
