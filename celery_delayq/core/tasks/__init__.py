"""Meanwhile: tasks that wait are read, found and changed.

    DelayQ, results, cli, control ---> reading    get, tasks, counts, state, handed_over
                                  ---> changing   of one task: cancel, reschedule, ...
                                  ---> selection  select ---> Selection: many tasks at once

Each function is a method of ``DelayQ``, which is its first argument. ``scheduled_task`` has the
task that callers read, and what names one. No module here uses a Redis key.
"""
