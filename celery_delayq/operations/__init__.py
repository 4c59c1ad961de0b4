"""Meanwhile: what one can do with a task that waits; one function an operation.

    results, control, CLI, DelayQ ---> reading    find, waiting, counts, state, handed_over
                  ---> history    history
                  ---> changing   cancel, reschedule
                                          |
                                          +-----> revoked: REVOKED in the result backend

``task`` is a scheduled task as one reads it; ``targets`` says whom a caller means. Nothing here
knows a key of Redis.
"""
