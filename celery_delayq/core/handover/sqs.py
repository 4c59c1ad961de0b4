"""Publishes to Amazon SQS, whose answer to a message says that it has it.

    answer                                       verdict
    an error about the message or its queue      refused
    a missing right, or wrong credentials        denied
    too many requests; or no connection          unsent, and the broker is lost
    an error of the service; or none in time     unknown, and the broker is lost

kombu counts all errors without an answer among those of a channel, which are about one message.
"""

from __future__ import annotations

import re
from uuid import NAMESPACE_OID, uuid5

from ..message.outgoing import Relayed
from ..store.values import LeasedEntry
from .publishers import UNKNOWN, UNSENT, OneByOne, Verdict

# Parts of the codes that say so; their HTTP status differs with the protocol.
_DENIED = re.compile(
    "AccessDenied|NotAuthorized|OptInRequired|InvalidSecurity|UnrecognizedClient|Credential|Signature|Token|AccessKey"
)
_SERVICE_FAILED = 500  # HTTP's lowest status of a server that failed


class Queueing(OneByOne):
    """Publishes to SQS."""

    def _verdict_of(self, error: Exception, *, partly: bool = False) -> Verdict:
        word = _word_of(error, partly)
        if not word:
            return super()._verdict_of(error, partly=partly)
        self.lost = f"{type(error).__name__}: {error}"
        return Verdict(word, self.lost)

    def _is_denied(self, error: Exception) -> bool:
        from botocore.exceptions import ClientError

        return isinstance(error, ClientError) and bool(
            _DENIED.search(error.response["Error"]["Code"])
        )

    def _send(self, entry: LeasedEntry, relayed: Relayed) -> None:
        # A FIFO queue takes one of all messages that have the same name within five minutes. kombu
        # would name each attempt anew.
        name = str(uuid5(NAMESPACE_OID, f"{entry.task_id} {entry.hand_over}"))
        relayed.options.setdefault("MessageDeduplicationId", name)
        super()._send(entry, relayed)


def _word_of(error: Exception, partly: bool) -> str:
    """Return the verdict if an error is about the service; else an empty text."""
    from botocore import exceptions as boto  # Celery's transport installs it

    if isinstance(error, boto.ClientError):
        if "Throttl" in error.response["Error"]["Code"]:
            return UNSENT
        failed = error.response["ResponseMetadata"]["HTTPStatusCode"] >= _SERVICE_FAILED
        return UNKNOWN if failed else ""
    if isinstance(error, boto.ParamValidationError) or not isinstance(error, boto.BotoCoreError):
        return ""
    unreached = isinstance(error, (boto.ConnectTimeoutError, boto.EndpointConnectionError))
    return UNSENT if unreached and not partly else UNKNOWN
