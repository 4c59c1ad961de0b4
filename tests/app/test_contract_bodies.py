"""A body leaves the queue as it entered it, for kombu's consumers and for signed messages."""

import hashlib
import hmac
import json

import pytest
from kombu import serialization
from kombu.serialization import registry

from tests.app.support import LONG_AGO
from tests.support.shards import keys_of

pytestmark = pytest.mark.libraries

KEY = b"key of this test"


def _sign(data):
    body = json.dumps(data).encode()
    return hmac.digest(KEY, body, hashlib.sha256) + b"\xff\x00\n" + body


def _verify(signed):
    signature, body = signed[:32], signed[35:]
    assert hmac.compare_digest(signature, hmac.digest(KEY, body, hashlib.sha256))
    return json.loads(body)


@pytest.fixture
def signed():
    """A serializer that signs its bytes, as Celery's `auth` does with certificates."""
    serialization.register("signed", _sign, _verify, "application/x-signed", "binary")
    yield "signed"
    serialization.unregister("signed")
    registry._disabled_content_types.discard("application/x-signed")


@pytest.fixture
def received():
    """The message that a consumer of kombu gets from a queue."""

    def receive(app, queue="celery"):
        with app.connection_for_read() as connection:
            simple = connection.SimpleQueue(queue, no_ack=True)
            message = simple.get_nowait()
            simple.close()
        return message

    return receive


def test_a_signed_body_is_read_and_edited_and_its_signature_still_holds_after_the_hand_over(
    delayq_app, url, signed, received
):
    app = delayq_app(url, accept_content=["signed"], task_serializer="signed")
    app.send_task("add", ("ü", 2**70, 0.1), {"y": [None]}, task_id="a", delayq_at=LONG_AGO)
    assert app.delayq.get("a").args == ("ü", 2**70, 0.1)
    assert app.delayq.edit("a", args=["ü", 5])
    task = app.delayq.get("a")

    app.delayq.hand_over()

    assert (task.args, task.kwargs) == (("ü", 5), {"y": [None]})
    message = received(app)
    message.accept = {"application/x-signed"}
    assert message.payload[:2] == [[*task.args], task.kwargs]


OF_ALL = {
    "nothing": {},
    "limits": {"time_limit": 30, "shadow": "another name", "ignore_result": True, "retries": 4},
    "compressed": {"compression": "zlib"},
    "stamped": {"stamped_headers": ["who"], "who": "me"},
    "of this package": {"delayq_once": True, "delayq_capture": True},
}


@pytest.mark.parametrize("name", OF_ALL)
def test_options_that_all_calls_share_take_no_room_in_a_record(app, redis, name):
    for task_id in "ab":
        app.send_task("add", task_id=task_id, delayq_after=60, **OF_ALL[name])

    differing = redis.hget(keys_of("b")["records"], "b").split(b"\n")
    # From the end: the numbers in front may contain any byte.
    assert differing[-3:-1] == [b'"()"', b'"{}"']
