"""The output of `delayq check --repair` on its page is the real one, but for the typed answer."""

import contextlib

from tests.readme.document import page
from tests.readme.test_console import said_by

COMMAND = "celery -A shop delayq check --repair --yes"


def test_the_output_is_what_one_sees(redis_server, shop, environment, shop_file):
    shop.remind.s(42).set(task_id="order-42").delay_until("2030-01-01T09:00:00Z")
    with contextlib.closing(redis_server.client()) as redis:
        redis.delete("{delayq:0}:due")
        redis.zadd("{delayq:0}:tags", {b"user:7\0......order-43": 0})

    [shown] = page("operate/backups").written_in("text")
    said, status = said_by(COMMAND, environment, shop_file)

    asked = "repair 2 findings? [y/N]: y\n"
    assert asked in shown.text
    assert (said, status) == (shown.text.replace(asked, ""), 0)
    assert shop.delayq.get("order-42").state == "SCHEDULED"
