r"""Messages of processes without this package, which should wait in the store and not in a worker.

    message --> has an option of ours? --> scheduled there and then           asked
           \--> an eta that is far? -----> buffer --> thread --> store        far, batches
                  | no, or doubtful                     |
                  +--- Celery's own way <--- refused ---+--- stored --> ack   worker

Store first, acknowledge second. A worker that dies in between leaves the message to be delivered
again, and the mark that stands beside its entry tells that it was stored.
"""
