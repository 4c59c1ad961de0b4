r"""Moves messages from processes without this package into the store, instead of holding them.

    message --> has an option of ours? --> scheduled at once                    adopting
           \--> has a far eta? -----------> buffer --> thread --> store         messages, batches
                  | no, or unclear                       |
                  +--- Celery's own way <--- refused ----+--- stored --> ack    adopting

Store first, acknowledge second. If a worker dies in between, the broker delivers the message again,
and the mark beside its entry says that it is stored.
"""
