"""A body leaves the queue as it entered it, for kombu's consumers and for signed messages."""

import hashlib
import hmac
import json
import pickle

import pytest
from kombu import serialization
from kombu.serialization import registry

from tests.app.support import LONG_AGO, envelope, templates
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


def test_a_signed_body_is_read_and_its_signature_still_holds_after_the_hand_over(
    delayq_app, url, signed, received
):
    app = delayq_app(url, accept_content=["signed"], task_serializer="signed")
    app.send_task("add", ("ü", 2**70, 0.1), {"y": [None]}, task_id="a", delayq_at=LONG_AGO)
    task = app.delayq.get("a")

    app.delayq.hand_over()

    assert (task.args, task.kwargs) == (("ü", 2**70, 0.1), {"y": [None]})
    message = received(app)
    message.accept = {"application/x-signed"}
    assert message.payload[:2] == [[*task.args], task.kwargs]


@pytest.mark.parametrize("compression", [None, "zlib", "bzip2"])
def test_every_byte_of_a_binary_body_survives(delayq_app, url, received, compression):
    app = delayq_app(url, accept_content=["pickle"], task_serializer="pickle")
    blob = bytes(range(256)) * 64
    app.send_task("add", (blob,), delayq_at=LONG_AGO, compression=compression)

    app.delayq.hand_over()

    message = received(app)
    message.accept = {"application/x-python-serialize"}
    assert message.payload[0] == (blob,)
    assert pickle.loads(message.body)[0] == (blob,) if not compression else True


@pytest.mark.parametrize("due", [0, LONG_AGO, LONG_AGO + 0.001, LONG_AGO + 0.9999])
@pytest.mark.parametrize("is_moved", [False, True], ids=["as scheduled", "moved"])
def test_the_due_time_in_the_header_is_the_last_due_time_of_the_entry(app, received, due, is_moved):
    app.send_task("add", (1,), task_id="a", delayq_at=4 * LONG_AGO if is_moved else due)
    if is_moved:
        app.delayq.reschedule("a", due)
    due_ms = app.delayq.services.entries.find("a").due_ms

    app.delayq.hand_over()

    assert received(app).headers["delayq_due"] == due_ms
    assert abs(due_ms - due * 1000) <= 1


def test_the_stored_message_is_the_one_that_is_delivered(app, delayq, redis):
    ids = ["a", "b", "c"]
    for task_id in ids:
        app.send_task("add", (1,), task_id=task_id, delayq_at=LONG_AGO)
    held = [envelope(delayq, task_id).raw for task_id in ids]

    delayq.hand_over()

    assert [json.loads(raw) for raw in reversed(redis.lrange("celery", 0, -1))] == held


def test_calls_share_one_template_that_goes_with_the_last_of_them(app, delayq, redis):
    for number in range(5):
        app.send_task("add", (number,), task_id=str(number), delayq_after=60)
    assert templates(redis) == (1, 4)

    for task_id in "01234":
        delayq.cancel(task_id)

    assert templates(redis) == (0, 0)


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
