"""What of kombu and of Celery's canvas the messages lean on beyond the documentation."""

from __future__ import annotations

from typing import Any

from ..libraries import Leaning, has, mentions, takes
from .native_delay import EXCHANGE


def _names_the_exchange(send_task: Any) -> str:
    # Celery before 5.5 delays nothing in the broker.
    if mentions("calculate_routing_key")(send_task):
        return ""
    # By its name; or by what makes it of a prefix.
    return mentions("level_name")(send_task) and mentions(EXCHANGE)(send_task)


def _labels_and_tags(augment: Any) -> str:
    wrong = takes("message", "exchange", "routing_key")(augment)
    return wrong or mentions("delivery_tag")(augment)


LEANS_ON = (
    Leaning(
        "kombu.transport.virtual:Channel.basic_publish",
        "a message is taken instead of published",
        takes("message", "exchange", "routing_key"),
    ),
    Leaning(
        "kombu.transport.virtual:Channel._inplace_augment_message",
        "a message is labelled as kombu does, and has a tag that no other has",
        _labels_and_tags,
    ),
    Leaning(
        "kombu.transport.virtual:Channel.encode_body",
        "a bulk's bodies are encoded as kombu does",
        takes("body", "encoding"),
    ),
    Leaning("kombu.transport.virtual:Channel.body_encoding", "the encoding of bodies"),
    Leaning("kombu.transport.virtual:Channel.codecs", "bodies are decoded", has("base64")),
    Leaning(
        "kombu.transport.redis:Channel",
        "the Redis list of a queue and a priority",
        has("sep", "priority_steps", "min_priority", "max_priority", "default_priority"),
    ),
    Leaning(
        "kombu:Connection.__init__",
        "which transport a broker has, whether it has alternates, and what was said of TLS",
        mentions("alt", "_init_params", "_initial_params"),
    ),
    Leaning(
        "kombu.transport.redis:SentinelChannel._sentinel_managed_pool",
        "what its options say of sentinels is read as kombu reads it",
        mentions("alt", "sentinel", "sentinel_kwargs", "min_other_sentinels", "master_name"),
    ),
    Leaning("kombu:Connection._init_params", "where a broker is", mentions("transport_cls")),
    Leaning(
        "kombu.serialization:SerializerRegistry.__init__",
        "a body of protocol 1 is serialised as it was",
        mentions("type_to_name"),
    ),
    Leaning("kombu:Queue.as_dict", "a relay declares queues", takes("recurse=")),
    Leaning(
        "celery.app.base:Celery.send_task",
        "an eta on quorum queues is undone",
        _names_the_exchange,
    ),
    Leaning("celery.canvas:Signature.subtask_type", "a canvas is told from a plain task"),
    Leaning("celery.canvas:Signature.freeze", "a canvas gets its ids", takes("id")),
)
