"""Operations on waiting tasks, one function each.

    DelayQ, results, cli, control -> reading  get, tasks, counts, state, handed_over
                             ---> status, health
                             ---> changing    cancel, reschedule, run_now, retry, remove
                             ---> editing     edit
                             ---> pausing     pause, resume, pauses
                             ---> freeing     free, holder
                             ---> filters     select ---> Selection: an operation on many tasks

Each function is a method of ``DelayQ``, which is its first argument. ``scheduled_task`` has the
task that callers read; ``targets`` resolves ids and keys; ``moves`` has the conditions of a
reschedule. No module here uses a Redis key.
"""
