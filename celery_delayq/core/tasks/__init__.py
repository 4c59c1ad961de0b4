"""Meanwhile: tasks that wait are read, found and changed.

    DelayQ, results, cli, control ---> reading    get, tasks, counts, state, handed_over
                                  ---> changing   cancel, reschedule, run_now, retry, remove
                                  ---> selecting  select ---> Selection: a change of many tasks

Each function is a method of ``DelayQ``, which is its first argument. ``scheduled_task`` has the
task that callers read; ``targets`` resolves ids and keys; ``moves`` has the conditions of a
reschedule. No module here uses a Redis key.
"""
