"""A broker that is no Redis, and no `delayq_url`: plain calls stay Celery's, others are refused."""

import logging

import pytest
from celery.exceptions import Ignore

from celery_delayq.errors import InvalidSetting, StoreError
from tests.app.support import FAR, received
from tests.app.test_capture_left import later
from tests.app.test_defer import run
from tests.support.ports import free_port
from tests.support.process import ChildProcess

pytestmark = pytest.mark.libraries

NO_STORE = (
    "there is no store, so workers deliver no scheduled tasks, and Celery keeps the tasks with an "
    "eta: "
)
WHY = "delayq_url is None; expected a redis:// URL, because the broker is not a Redis"


@pytest.fixture
def app(delayq_app):
    return delayq_app("memory://", delayq_capture_eta=True)


def test_a_countdown_is_left_to_celery_with_one_warning(app, add, caplog):
    with caplog.at_level(logging.WARNING, "celery_delayq"):
        add.apply_async((1,), countdown=5)
        add.apply_async((2,), countdown=5, expires=60)

    assert [one.payload[0] for one in received(app)] == [[1], [2]]
    [told] = [one for one in caplog.messages if "store" in one]
    assert told == f"{NO_STORE}{WHY}"


def test_a_task_puts_itself_off_by_an_eta(app):
    with pytest.raises(Ignore):
        run(later(app))

    [message] = received(app, "mail")
    assert message.headers["eta"]
    assert message.headers["delayq_put_offs"] == 1


ASKING = {
    "a call": lambda app: app.send_task("t", delayq_after=5),
    "an eta and a key": lambda app: app.send_task("t", countdown=5, delayq_key="k"),
    "get": lambda app: app.delayq.get("a"),
    "scanner": lambda app: app.delayq.scanner(),
}


@pytest.mark.parametrize("ask", ASKING)
def test_a_call_that_needs_the_store_is_refused(app, ask):
    with pytest.raises(InvalidSetting) as caught:
        ASKING[ask](app)

    assert str(caught.value) == WHY


def test_a_sentinel_in_place_of_the_store_is_refused(redis_server, delayq_app, tmp_path):
    port, conf = free_port(), tmp_path / "sentinel.conf"
    conf.write_text(f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\n")
    command = [redis_server.binary, str(conf), "--sentinel"]
    sentinel = ChildProcess(command, log=tmp_path / "log")
    try:
        sentinel.wait_log(r"Sentinel ID is")
        app = delayq_app(f"redis://127.0.0.1:{port}/0")

        with pytest.raises(StoreError) as caught:
            app.send_task("t", delayq_at=FAR)
    finally:
        sentinel.kill()

    assert (
        str(caught.value) == "schedule failed: this is a Redis Sentinel, which keeps nothing; name "
        "it by a sentinel:// URL, and its master by master_name in the transport options"
    )
