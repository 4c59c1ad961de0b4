"""Every option of ``apply_async`` and ``send_task``, and what it does to a scheduled task.

``test_every_option`` tries them; the reference has those that differ.
"""

from __future__ import annotations

IN_MESSAGE = "has it in its message, as Celery puts it there"
THE_SAME = "does not differ: it belongs to the call's result, or Celery sets it itself"

#: Names of options -> what becomes of them.
OF_CELERY = {
    "args kwargs task_id shadow retries time_limit soft_time_limit ignore_result group_id "
    "group_index root_id parent_id chain chord link link_error reply_to replaced_task_nesting "
    "argsrepr kwargsrepr origin stamped_headers headers serializer compression priority "
    "delivery_mode correlation_id message_id timestamp type user_id app_id cluster_id": IN_MESSAGE,
    "name queue exchange exchange_type routing_key route_name router task_type": (
        "is routed by it at the call"
    ),
    "declare": "is delivered after these are declared",
    "expires": "expires so long after its due time, if it is relative",
    "expiration": "is kept in a queue of RabbitMQ for so long, from its delivery",
    "countdown eta now timezone": (
        "is due then, if the call is captured; beside a time of this package, `countdown` and "
        "`eta` are `InvalidOption`"
    ),
    "retry retry_policy": (
        "is written to the store again that often, if Redis refuses the connection"
    ),
    "mandatory": "is always delivered so: a missing queue is an error, and it is tried again",
    "timeout confirm_timeout": "has the scanner's time limits: the call waits for no broker",
    "connection producer publisher": (
        "must go to the app's broker: to another one, a captured call is left to Celery, any other "
        "is `InvalidOption`"
    ),
    "immediate event_dispatcher": (
        "cannot have it: a captured call is left to Celery, any other is `InvalidOption`"
    ),
    "result_cls add_to_parent body content_type content_encoding callbacks errbacks "
    "create_sent_event": THE_SAME,
}


def described() -> dict[str, str]:
    """Each option by its name, with what becomes of it."""
    return {name: said for names, said in OF_CELERY.items() for name in names.split()}
