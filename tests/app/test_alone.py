"""A Sentinel URL is refused with one sentence, before anything is done."""

import pytest

from celery_delayq.errors import StoreError
from tests.app.support import FAR
from tests.support.ports import free_port
from tests.support.process import ChildProcess

pytestmark = pytest.mark.libraries


def test_a_sentinel_is_refused(redis_server, delayq_app, tmp_path):
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
