"""Commands that change tasks import the app's modules, so that their receivers hear of it."""

import pytest
from celery.signals import import_modules

from celery_delayq import signals
from tests.app.support import FAR

CHANGES = (
    "cancel a", "reschedule a +1h", "run-now a", "edit a --priority 3", "retry a", "remove a",
    "release --all --yes", "undo a", "rules remove digest", "cancel --all --yes",
)  # fmt: skip
LOOKS = ("status", "health", "list", "show a", "history", "undo", "rules", "cancel --all --dry-run")


@pytest.fixture
def imported(app):
    """Put a module beside the app, which connects a receiver; what that hears."""
    heard = []

    def hear(task_id, **_):
        heard.append(task_id)

    def module(**_):
        heard.append("imported")
        signals.task_cancelled.connect(hear, sender=app, weak=False)

    import_modules.connect(module, sender=app, weak=False)
    yield heard
    import_modules.disconnect(module, sender=app)
    signals.task_cancelled.disconnect(hear, sender=app)


@pytest.mark.parametrize(
    ("command", "is_change"),
    [*((each, True) for each in CHANGES), *((each, False) for each in LOOKS)],
)
def test_only_a_command_that_changes_tasks_imports_the_app_s_modules(
    app, run, imported, command, is_change
):
    app.send_task("t", task_id="a", delayq_at=FAR)
    run(*command.split())
    assert ("imported" in imported) == is_change


def test_a_receiver_in_a_module_of_the_app_hears_of_a_cancel(app, said, imported):
    app.send_task("t", task_id="a", delayq_at=FAR)

    assert said("cancel", "a") == ["task a cancelled"]

    assert imported == ["imported", "a"]


def test_a_module_that_cannot_be_imported_is_told_and_the_command_goes_on(app, said, request):
    def module(**_):
        raise ImportError("no module named 'x'")

    import_modules.connect(module, sender=app, weak=False)
    request.addfinalizer(lambda: import_modules.disconnect(module, sender=app))
    app.send_task("t", task_id="a", delayq_at=FAR)

    note, done = said("cancel", "a")

    assert note == (
        "signal receivers of the app may miss this, as not all its modules can be imported: "
        "ImportError(\"no module named 'x'\")"
    )
    assert done == "task a cancelled"
