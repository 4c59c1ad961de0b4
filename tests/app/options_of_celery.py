"""Every option of ``apply_async`` and ``send_task``, and what it does to a scheduled task.

``test_contract`` tries them; the reference has those that differ.
"""

from __future__ import annotations

IN_MESSAGE = "it is in the message, as Celery puts it there"
THE_SAME = "it does not differ: it belongs to the call's result, or Celery sets it itself"

#: Names of options -> what becomes of them.
OF_CELERY = {
    "args kwargs task_id shadow retries time_limit soft_time_limit ignore_result group_id "
    "group_index root_id parent_id chain chord link link_error reply_to replaced_task_nesting "
    "argsrepr kwargsrepr origin stamped_headers headers serializer compression priority "
    "delivery_mode correlation_id message_id timestamp type user_id app_id cluster_id": IN_MESSAGE,
    "name queue exchange exchange_type routing_key route_name router task_type": (
        "the task is routed by it at the call"
    ),
    "declare": "these are declared before the delivery",
    "expires": "a relative one counts from the due time",
    "expiration": "the time in a queue of RabbitMQ counts from the delivery",
    "countdown eta now timezone": (
        "the due time of a captured call; beside a time of this package, the first two raise "
        "`InvalidOption`"
    ),
    "retry retry_policy": "how often the call tries a store that refuses the connection",
    "mandatory": "always set: a missing queue is an error, and the delivery is tried again",
    "timeout confirm_timeout": "the scanner's limits count, as the call waits for no broker",
    "connection producer publisher": (
        "of the app's broker only: with another one, a captured call is left to Celery, and any "
        "other raises `InvalidOption`"
    ),
    "immediate event_dispatcher": "not possible: the same happens",
    "result_cls add_to_parent body content_type content_encoding callbacks errbacks "
    "create_sent_event": THE_SAME,
}


def described() -> dict[str, str]:
    """Each option by its name, with what becomes of it."""
    return {name: said for names, said in OF_CELERY.items() for name in names.split()}
