"""moto's server: an imitation of SQS on loopback, in memory. It forgets everything when it ends."""

import base64
import json
import sys
from functools import cached_property
from typing import Any, NamedTuple

import boto3

from tests.support.ports import free_port
from tests.support.process import ChildProcess
from tests.support.server import Server

LOGIN = {
    "aws_access_key_id": "key",
    "aws_secret_access_key": "secret",
    "region_name": "us-east-1",
}


class Received(NamedTuple):
    """A message: its task's id, arguments and headers, and what SQS itself knows of it."""

    id: str
    args: list
    headers: dict[str, Any]
    attributes: dict[str, str]

    @classmethod
    def of(cls, message: dict[str, Any]) -> "Received":
        # kombu writes message and body in base64.
        envelope = json.loads(base64.b64decode(message["Body"]))
        args, _, _ = json.loads(base64.b64decode(envelope["body"]))
        headers = envelope["headers"]
        return cls(headers["id"], args, headers, message["Attributes"])


class SqsServer(Server):
    """One server; it keeps its port over a restart."""

    def __init__(self):
        super().__init__()
        self.port = free_port()

    def start(self) -> None:
        where = ("-H", "127.0.0.1", "-p", str(self.port))
        self._process = ChildProcess(
            [sys.executable, "-m", "moto.server", *where], log=self.folder / "sqs.log"
        )
        self._process.wait_log("Running on")

    def url(self, port: int | None = None) -> str:
        return f"sqs://key:secret@127.0.0.1:{port or self.port}"

    @cached_property
    def client(self):
        return boto3.client("sqs", endpoint_url=f"http://127.0.0.1:{self.port}", **LOGIN)

    def queue_url(self, queue: str) -> str:
        return self.client.get_queue_url(QueueName=queue)["QueueUrl"]

    def queues(self) -> list[str]:
        return [url.rpartition("/")[2] for url in self.client.list_queues().get("QueueUrls", ())]

    def take(self, queue: str) -> list[Received]:
        """The messages of a queue, which this empties; without kombu, which waits for more."""
        taken, where = [], {"QueueUrl": self.queue_url(queue)}
        while found := self.client.receive_message(
            **where, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
        ).get("Messages"):
            for one in found:
                self.client.delete_message(**where, ReceiptHandle=one["ReceiptHandle"])
            taken += map(Received.of, found)
        return taken

    def count(self, queue: str) -> int:
        """How many messages a queue has, whether a worker holds them or not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client.get_queue_attributes(
            QueueUrl=self.queue_url(queue), AttributeNames=names
        )
        return sum(int(found["Attributes"][name]) for name in names)
