"""Meanwhile: what one can do with tasks that wait; one function an operation.

    DelayQ, results, control ---> reading     get, tasks, counts, state, handed_over
                             ---> status, health, history
                             ---> changing    cancel, reschedule, run_now, retry, remove
                             ---> editing     edit
                             ---> pausing     pause, resume, pauses
                             ---> selecting   select ---> Selection: many of these at once

Each is a method of ``DelayQ`` as it stands here; its first argument is that object. ``task`` is a
scheduled task as one reads it; ``targets`` says whom a caller means. Nothing here knows a key of
Redis.
"""
