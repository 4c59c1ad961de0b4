"""Meanwhile: what one can do with tasks that wait; one function an operation.

    DelayQ, results, cli, control -> reading  get, tasks, counts, state, handed_over
                             ---> status, health
                             ---> changing    cancel, reschedule, run_now, retry, remove
                             ---> editing     edit
                             ---> pausing     pause, resume, pauses
                             ---> filters     select ---> Selection: many of these at once

Each is a method of ``DelayQ`` as it stands here; its first argument is that object.
``scheduled_task`` is a task as one reads it; ``targets`` says whom a caller means; ``moves`` has
what a reschedule of one task and of many share. Nothing here knows a key of Redis.
"""
